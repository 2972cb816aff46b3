use ndpool::Pool;
fn main() {
    let mut array = Pool::new().ones::<f64, _>(3);
    let view = array.view_mut();
    drop(array);
    println!("{}", view.sum());
}
// error[E0505]: cannot move out of `array` because it is borrowed
