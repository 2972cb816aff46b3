use ndpool::Pool;
fn main() {
    let pool = Pool::new();
    let kept = pool.scope(|s| s.ones::<f64, _>(3) + 1.0);
    println!("{}", kept.sum());
}
// error: lifetime may not live long enough
