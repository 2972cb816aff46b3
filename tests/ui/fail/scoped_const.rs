use ndpool::Pool;
#[ndpool::scoped(s = pool)]
const fn f(pool: &Pool) -> f64 {
    1.0
}
fn main() {}
// error: does not cover `const` functions
