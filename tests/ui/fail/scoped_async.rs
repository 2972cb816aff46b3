use ndpool::Pool;
use ndpool::SharedArray;
#[ndpool::scoped(s = pool)]
async fn f(pool: &Pool) -> SharedArray<f64, ndarray::Ix1> {
    s.ones(3)
}
fn main() {}
// error: does not cover `async` functions
