use ndpool::Pool;
fn main() {
    let pool = Pool::new();
    let s = pool.open();
    let input = pool.ones::<f64, _>(3);
    let x = s.lift(&input);
    drop(input);
    println!("{}", x.sum());
}
// error[E0505]: cannot move out of `input` because it is borrowed
