use ndpool::Pool;
fn main() {
    let array = Pool::new().ones::<usize, _>(3).share();
    let _ = array.reinterpret::<&'static str>();
}
