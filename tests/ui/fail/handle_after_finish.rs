use ndpool::Pool;
fn main() {
    let pool = Pool::new();
    let s = pool.open();
    let x = s.ones::<f64, _>(3);
    s.finish();
    println!("{}", x.sum());
}
// error[E0505]: cannot move out of `s` because it is borrowed
