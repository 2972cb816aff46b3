use ndpool::Pool;
fn main() {
    let pool = Pool::new();
    let mut kept = Vec::new();
    pool.scope(|s| kept.push(s.ones::<f64, _>(3)));
}
// error[E0521]: escapes
