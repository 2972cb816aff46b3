use std::sync::Arc;
use ndpool::allocator::{BufferAllocator, System, Tracked};
use ndpool::PoolArray;
fn main() {
    let array;
    {
        let shared: Arc<dyn BufferAllocator> = Arc::new(Tracked::new(System));
        array = PoolArray::<f64, _>::zeros_in(3, shared).unwrap();
    }
    println!("{}", array.sum());
}
