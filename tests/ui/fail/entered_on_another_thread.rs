use ndpool::Pool;
fn main() {
    let entered = Pool::new().enter();
    std::thread::spawn(move || drop(entered));
}
