use ndpool::Pool;
fn main() {
    let entered = Pool::new().enter();
    std::thread::spawn(move || drop(entered));
}
// error[E0277]: cannot be sent between threads safely
