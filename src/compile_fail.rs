//! What must not compile (F12), each beside a twin that does.
//!
//! A pool, its builder's source and callbacks are shared by threads:
//!
//! ```
//! let total = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
//! let pool = ndpool::Pool::builder().on_reclaim(move |_| total.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 9).build();
//! std::thread::spawn(move || pool.trim());
//! ```
//! ```compile_fail,E0277
//! let total = std::rc::Rc::new(std::cell::Cell::new(0));
//! let pool = ndpool::Pool::builder().on_reclaim(move |_| total.get() > 9).build();
//! ```
//!
//! Elements are plain, sendable, and zero when their bytes are:
//!
//! ```
//! ndpool::Pool::new().zeroed::<[f64; 3]>(3).unwrap();
//! ```
//! ```compile_fail,E0277
//! ndpool::Pool::new().zeroed::<std::num::NonZeroU64>(3).unwrap();
//! ```
//! ```compile_fail,E0277
//! ndpool::Pool::new().zeroed::<std::cell::Cell<u64>>(3).unwrap();
//! ```
//! ```compile_fail,E0277
//! ndpool::Pool::new().filled(3, String::new()).unwrap();
//! ```
//! ```compile_fail,E0277
//! let value = 1u8;
//! ndpool::Pool::new().filled(3, &value).unwrap();
//! ```
//!
//! A unique buffer has one owner (F23: a second donation), and its memory does not move under a
//! reader (F22):
//!
//! ```
//! let mut buffer = ndpool::Pool::new().filled(3, 1u8).unwrap();
//! let first = buffer[0];
//! buffer.resize(100, first).unwrap();
//! let shared = buffer.share();
//! drop(shared);
//! ```
//! ```compile_fail,E0382
//! let buffer = ndpool::Pool::new().filled(3, 1u8).unwrap();
//! let shared = buffer.share();
//! drop(buffer);
//! ```
//! ```compile_fail,E0382
//! let shared = ndpool::Pool::new().filled(3, 1u8).unwrap().share();
//! let unique = shared.try_unique();
//! let again = shared.try_unique();
//! ```
//! ```compile_fail,E0502
//! let mut buffer = ndpool::Pool::new().filled(3, 1u8).unwrap();
//! let first = &buffer[0];
//! buffer.resize(100, 0).unwrap();
//! assert_eq!(*first, 1);
//! ```
//! ```compile_fail,E0505
//! let buffer = ndpool::Pool::new().filled(3, 1u8).unwrap();
//! let first = &buffer[0];
//! drop(buffer);
//! assert_eq!(*first, 1);
//! ```
//!
//! Shared buffers are read only, but for an only owner (F11):
//!
//! ```
//! let mut shared = ndpool::Pool::new().filled(3, 1u8).unwrap().share();
//! shared.make_mut().unwrap()[0] = 2;
//! ```
//! ```compile_fail,E0594
//! let mut shared = ndpool::Pool::new().filled(3, 1u8).unwrap().share();
//! shared[0] = 2;
//! ```
//! ```compile_fail,E0499
//! let mut shared = ndpool::Pool::new().filled(3, 1u8).unwrap().share();
//! let first = shared.make_mut().unwrap();
//! let second = shared.make_mut().unwrap();
//! first[0] = second[0];
//! ```
//!
//! Bytes are reinterpreted between plain data only: a `bool` is not any byte, and padding is not
//! initialised:
//!
//! ```
//! let words = ndpool::Pool::new().filled(3, 1u32).unwrap().share().reinterpret::<u8>().unwrap();
//! ```
//! ```compile_fail,E0277
//! let flags = ndpool::Pool::new().filled(3, 7u8).unwrap().share().reinterpret::<bool>().unwrap();
//! ```
//! ```compile_fail,E0277
//! let raw = ndpool::Pool::new().allocate::<u8>(3).unwrap().share().reinterpret::<u8>().unwrap();
//! ```
//!
//! Uninitialised elements are not read as if they were:
//!
//! ```
//! let buffer = ndpool::Pool::new().allocate::<u8>(3).unwrap().fill_with(|n| n as u8);
//! let sum: u8 = buffer.iter().sum();
//! ```
//! ```compile_fail,E0277
//! let buffer = ndpool::Pool::new().allocate::<u8>(3).unwrap();
//! let sum: u8 = buffer.iter().sum();
//! ```
//!
//! What is borrowed for ever, or owned by somebody else, lives for ever, or with its owner:
//!
//! ```
//! ndpool::SharedBuffer::from_static(&[1u8, 2]).unwrap();
//! ndpool::SharedBuffer::from_owner(vec![1u8, 2]).unwrap();
//! ```
//! ```compile_fail,E0597
//! let local = [1u8, 2];
//! ndpool::SharedBuffer::from_static(&local[..]).unwrap();
//! ```
//! ```compile_fail,E0277
//! struct Local(std::rc::Rc<[u8]>);
//! impl AsRef<[u8]> for Local { fn as_ref(&self) -> &[u8] { &self.0 } }
//! ndpool::SharedBuffer::from_owner(Local([1u8, 2].into())).unwrap();
//! ```
