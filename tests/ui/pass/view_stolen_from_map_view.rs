use ndpool::Pool;
fn main() {
    let array = Pool::new().ones::<f64, _>(3).share();
    let mut length = None;
    let _ = array.map_view(|view| {
        length = Some(view.len());
        view
    });
    drop(array);
    println!("{:?}", length);
}
