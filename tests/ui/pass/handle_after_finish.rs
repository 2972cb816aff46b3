use ndpool::Pool;
fn main() {
    let pool = Pool::new();
    let s = pool.open();
    let x = s.returns(s.ones::<f64, _>(3));
    s.finish();
    println!("{}", x.sum());
}
