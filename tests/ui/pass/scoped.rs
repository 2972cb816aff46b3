use ndpool::Pool;
use ndpool::SharedArray;
#[ndpool::scoped(s = pool)]
fn f(pool: &Pool) -> SharedArray<f64, ndarray::Ix1> {
    s.ones(3)
}
fn main() {
    println!("{}", f(&Pool::new()).sum());
}
