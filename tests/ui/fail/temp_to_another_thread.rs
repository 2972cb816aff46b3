use ndpool::Pool;
fn main() {
    let pool = Pool::new();
    let s = pool.open();
    let x = s.ones::<f64, _>(3);
    std::thread::scope(|threads| {
        threads.spawn(move || x.sum());
    });
}
// error[E0277]: between threads safely
