use ndpool::Pool;
fn main() {
    let pool = Pool::new();
    let mut s = pool.open();
    let x = s.ones::<f64, _>(3);
    s.reset();
    println!("{}", x.sum());
}
// error[E0502]: cannot borrow `s` as mutable
