use ndpool::Pool;
fn main() {
    let array = Pool::new().ones::<f64, _>(3).share();
    let mut stolen = None;
    let _ = array.map_view(|view| {
        stolen = Some(view.clone());
        view
    });
    drop(array);
    println!("{:?}", stolen);
}
// error[E0521]: escapes
