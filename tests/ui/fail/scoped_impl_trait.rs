use ndpool::Pool;
#[ndpool::scoped(s = pool)]
fn f(pool: &Pool) -> Option<impl Sized> {
    Some(s.ones::<f64, _>(3))
}
fn main() {}
// error: does not cover functions that return `impl Trait`
