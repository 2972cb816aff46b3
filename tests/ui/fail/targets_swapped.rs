use ndpool::Pool;
fn main() {
    let pool = Pool::new();
    let (mut a, mut b) = (pool.ones::<f64, _>(3), pool.ones::<f64, _>(9));
    std::mem::swap(&mut *a, &mut *b);
}
// error[E0277]: the size for values of type
