use std::sync::Arc;
use ndpool::allocator::{BufferAllocator, System, Tracked};
use ndpool::PoolArray;
fn main() {
    let array;
    {
        let local = Tracked::new(System);
        let borrowed: Arc<dyn BufferAllocator + '_> = Arc::new(&local);
        array = PoolArray::<f64, _>::zeros_in(3, borrowed).unwrap();
    }
    println!("{}", array.sum());
}
// error[E0597]: `local` does not live long enough
