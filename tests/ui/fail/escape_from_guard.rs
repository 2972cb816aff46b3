use ndpool::Pool;
fn main() {
    let pool = Pool::new();
    let kept;
    {
        let s = pool.open();
        kept = s.ones::<f64, _>(3) + 1.0;
    }
    println!("{}", kept.sum());
}
// error[E0597]: `s` does not live long enough
