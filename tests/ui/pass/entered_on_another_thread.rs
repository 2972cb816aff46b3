use ndpool::Pool;
fn main() {
    let pool = Pool::new();
    std::thread::spawn(move || drop(pool.enter()));
}
