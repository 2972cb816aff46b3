use ndpool::Pool;
fn main() {
    let mut array = Pool::new().ones::<f64, _>(3).share();
    array.fill(2.0);
}
// error[E0596]: as mutable
