use ndpool::Pool;
#[ndpool::scoped(s)]
fn f(pool: &Pool) -> f64 {
    s.ones::<f64, _>(3).sum()
}
fn main() {}
// error: expected `name = pool`
