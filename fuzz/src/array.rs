//! Arrays, their views and scopes against ndarray: the same operations on both, the same shape and
//! elements after each, and the exact number of owners of every buffer.

use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use ndarray::{ArrayD, Axis, IxDyn, Slice};
use ndpool::{ArrayError, Pool, PoolArray, SharedArray};

use super::source::Watched;

type Pick = u8;

/// Up to four axes of up to seven elements.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Shape {
    ndim: u8,
    axes: [u8; 4],
}

impl Shape {
    fn of(self) -> IxDyn {
        let ndim = usize::from(self.ndim % 5);
        let axes: Vec<usize> = self.axes[..ndim]
            .iter()
            .map(|axis| usize::from(axis % 8))
            .collect();
        IxDyn(&axes)
    }

    /// A shape for exactly `len` elements.
    fn for_len(self, len: usize) -> IxDyn {
        let first = usize::from(self.axes[0] % 8);
        if first > 0 && len.is_multiple_of(first) {
            IxDyn(&[first, len / first])
        } else {
            IxDyn(&[len])
        }
    }
}

/// What is done to a view: an axis, a range and a step.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Cut {
    axis: u8,
    start: u8,
    end: u8,
    step: i8,
}

impl Cut {
    fn of(self, shape: &[usize]) -> Option<(Axis, Slice)> {
        let axis = usize::from(self.axis).checked_rem(shape.len())?;
        let places = shape[axis] + 1;
        let (a, b) = (
            usize::from(self.start) % places,
            usize::from(self.end) % places,
        );
        let step = match isize::from(self.step % 4) {
            0 => 1,
            step => step,
        };
        let slice = Slice::new(a.min(b) as isize, Some(a.max(b) as isize), step);
        Some((Axis(axis), slice))
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    Zeros(Shape),
    Full(Shape, i16),
    FromVec(Shape, i16),
    FromFn(Shape, i16),
    Uninit(Shape, i16),
    Write(Pick, u16, i16),
    ResizeOwned(Pick, Shape),
    IntoShape(Pick, Shape),
    SliceMove(Pick, Cut),
    ReverseAxes(Pick),
    CloneOwned(Pick),
    AddOwned(Pick, Pick),
    DropOwned(Pick),
    Share(Pick),
    CloneShared(Pick),
    Cut(Pick, Cut),
    Transpose(Pick),
    Permute(Pick, u8),
    Reverse(Pick, u8),
    Reshape(Pick, Shape),
    Broadcast(Pick, Shape),
    Diagonal(Pick),
    Copy(Pick),
    Unique(Pick),
    MakeMut(Pick, u16, i16),
    Resize(Pick, Shape),
    Detach(Pick, Shape),
    DropShared(Pick),
    Scoped(Pick, Pick),
    ScopedThrough(Pick),
}

struct Owned {
    array: PoolArray<i64, IxDyn>,
    model: ArrayD<i64>,
}

struct Shared {
    array: SharedArray<i64, IxDyn>,
    model: ArrayD<i64>,
}

/// Arrays of one kind at most, and elements of one array.
const MOST: usize = 16;
const ELEMENTS: usize = 1 << 14;

struct State {
    pool: Pool,
    owned: Vec<Owned>,
    shared: Vec<Shared>,
}

/// Runs one input.
pub fn run(input: &[u8]) {
    let mut u = Unstructured::new(input);
    let source = Arc::new(Watched::default());
    let pool = Pool::builder().source(Arc::clone(&source)).build();
    // Arrays without elements, and what is made of them, take the ambient pool.
    let _entered = pool.enter();
    let mut state = State {
        pool: pool.clone(),
        owned: Vec::new(),
        shared: Vec::new(),
    };
    for _ in 0..200 {
        let Ok(op) = u.arbitrary::<Op>() else { break };
        state.step(op);
        state.check();
        if u.is_empty() {
            break;
        }
    }
    drop(state);
    let audit = pool.audit().expect("the books balance");
    assert_eq!(audit.live, 0, "blocks of dead arrays live on");
    pool.close();
    assert_eq!(source.blocks(), 0, "blocks leaked");
}

fn choose<T>(of: &[T], pick: Pick) -> Option<usize> {
    usize::from(pick).checked_rem(of.len())
}

fn items(len: usize, seed: i16) -> Vec<i64> {
    (0..len as i64)
        .map(|index| index * 3 + i64::from(seed))
        .collect()
}

/// The elements in logical order, cut or filled up with zeroes, in another shape.
fn resized(model: &ArrayD<i64>, shape: &IxDyn) -> ArrayD<i64> {
    let len = shape_len(shape);
    let mut elements: Vec<i64> = model.iter().copied().take(len).collect();
    elements.resize(len, 0);
    ArrayD::from_shape_vec(shape.clone(), elements).expect("as many elements")
}

fn shape_len(shape: &IxDyn) -> usize {
    ndarray::Dimension::size(shape)
}

/// Results stay small, so that no sum overflows.
fn small(value: i64) -> i64 {
    value % 10_007
}

fn same(array: &ndarray::ArrayRef<i64, IxDyn>, model: &ArrayD<i64>) {
    assert_eq!(array.shape(), model.shape());
    assert!(array.iter().eq(model.iter()), "{array:?} is not {model:?}");
}

impl State {
    fn check(&self) {
        for Owned { array, model } in &self.owned {
            same(array, model);
        }
        for Shared { array, model } in &self.shared {
            same(array, model);
            let Some(handle) = array.handle() else {
                assert!(model.is_empty(), "elements without a buffer");
                continue;
            };
            let owners = self
                .shared
                .iter()
                .filter(|other| other.array.handle() == Some(handle));
            assert_eq!(array.owners() as usize, owners.count(), "owners");
        }
    }

    fn own(&mut self, array: PoolArray<i64, IxDyn>, model: ArrayD<i64>) {
        same(&array, &model);
        if self.owned.len() < MOST && model.len() <= ELEMENTS {
            self.owned.push(Owned { array, model });
        }
    }

    fn hold(&mut self, array: SharedArray<i64, IxDyn>, model: ArrayD<i64>) {
        same(&array, &model);
        if self.shared.len() < MOST && model.len() <= ELEMENTS {
            self.shared.push(Shared { array, model });
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Zeros(shape) => {
                let shape = shape.of();
                let array = self.pool.try_zeros(shape.clone()).expect("no limit");
                self.own(array, ArrayD::zeros(shape));
            }
            Op::Full(shape, value) => {
                let (shape, value) = (shape.of(), i64::from(value));
                let array = self.pool.try_full(shape.clone(), value).expect("no limit");
                self.own(array, ArrayD::from_elem(shape, value));
            }
            Op::FromVec(shape, seed) => {
                let shape = shape.of();
                let elements = items(shape_len(&shape), seed);
                let array = self.pool.try_from_vec(shape.clone(), elements.clone());
                let model = ArrayD::from_shape_vec(shape, elements).expect("as many elements");
                self.own(array.expect("no limit"), model);
            }
            Op::FromFn(shape, seed) => {
                let shape = shape.of();
                let f = |index: IxDyn| {
                    let index = ndarray::Dimension::as_array_view(&index).sum();
                    index as i64 * i64::from(seed)
                };
                let array = self
                    .pool
                    .try_from_shape_fn(shape.clone(), f)
                    .expect("no limit");
                self.own(array, ArrayD::from_shape_fn(shape, f));
            }
            Op::Uninit(shape, value) => {
                let (shape, value) = (shape.of(), i64::from(value));
                let array = self
                    .pool
                    .try_uninit::<i64, _>(shape.clone())
                    .expect("no limit");
                self.own(array.init_full(value), ArrayD::from_elem(shape, value));
            }
            Op::Write(..)
            | Op::ResizeOwned(..)
            | Op::IntoShape(..)
            | Op::SliceMove(..)
            | Op::ReverseAxes(..)
            | Op::CloneOwned(..)
            | Op::AddOwned(..)
            | Op::DropOwned(..)
            | Op::Share(..) => self.on_owned(op),
            Op::Scoped(left, right) => self.scoped(left, right),
            Op::ScopedThrough(pick) => self.scoped_through(pick),
            _ => self.on_shared(op),
        }
    }

    fn on_owned(&mut self, op: Op) {
        let (Op::Write(pick, ..)
        | Op::ResizeOwned(pick, _)
        | Op::IntoShape(pick, _)
        | Op::SliceMove(pick, _)
        | Op::ReverseAxes(pick)
        | Op::CloneOwned(pick)
        | Op::AddOwned(pick, _)
        | Op::DropOwned(pick)
        | Op::Share(pick)) = op
        else {
            return;
        };
        let Some(index) = choose(&self.owned, pick) else {
            return;
        };
        match op {
            Op::CloneOwned(_) => {
                let Owned { array, model } = &self.owned[index];
                let (array, model) = (array.try_clone().expect("no limit"), model.clone());
                return self.own(array, model);
            }
            Op::AddOwned(_, other) => {
                let other = choose(&self.owned, other).expect("there is one at least");
                let (left, right) = (&self.owned[index], &self.owned[other]);
                if left.model.shape() == right.model.shape() {
                    let array = (&left.array + &right.array).map(small);
                    let model = (&left.model + &right.model).mapv(small);
                    self.own(array, model);
                }
                return;
            }
            _ => {}
        }
        let Owned {
            mut array,
            mut model,
        } = self.owned.swap_remove(index);
        match op {
            Op::Write(_, at, value) if !model.is_empty() => {
                let at = usize::from(at) % model.len();
                *array.iter_mut().nth(at).expect("below the length") = value.into();
                *model.iter_mut().nth(at).expect("below the length") = value.into();
            }
            Op::ResizeOwned(_, shape) => {
                // The number of axes is the type's, or here the array's own.
                let shape = shape.of();
                array.resize(shape.clone()).expect("no limit");
                model = resized(&model, &shape);
            }
            Op::IntoShape(_, shape) => {
                let shape = shape.for_len(model.len());
                array = array.into_shape(shape.clone()).expect("as many elements");
                model = resized(&model, &shape);
            }
            Op::SliceMove(_, cut) => {
                if let Some((axis, slice)) = cut.of(model.shape()) {
                    array = array.slice_move(slice_info(model.ndim(), axis, slice));
                    model = model.slice_axis(axis, slice).to_owned();
                }
            }
            Op::ReverseAxes(_) => {
                array = array.reversed_axes();
                model = model.reversed_axes();
            }
            Op::DropOwned(_) => return,
            Op::Share(_) => return self.hold(array.share(), model),
            _ => {}
        }
        self.own(array, model);
    }

    fn on_shared(&mut self, op: Op) {
        let (Op::CloneShared(pick)
        | Op::Cut(pick, _)
        | Op::Transpose(pick)
        | Op::Permute(pick, _)
        | Op::Reverse(pick, _)
        | Op::Reshape(pick, _)
        | Op::Broadcast(pick, _)
        | Op::Diagonal(pick)
        | Op::Copy(pick)
        | Op::Unique(pick)
        | Op::MakeMut(pick, ..)
        | Op::Resize(pick, _)
        | Op::Detach(pick, _)
        | Op::DropShared(pick)) = op
        else {
            return;
        };
        let Some(index) = choose(&self.shared, pick) else {
            return;
        };
        match op {
            Op::DropShared(_) => drop(self.shared.swap_remove(index)),
            Op::Unique(_) => self.unique(index),
            Op::MakeMut(_, at, value) => {
                let Shared { array, model } = &mut self.shared[index];
                let mut view = array.make_mut().expect("no limit");
                if !model.is_empty() {
                    let at = usize::from(at) % model.len();
                    *view.iter_mut().nth(at).expect("below the length") = value.into();
                    *model.iter_mut().nth(at).expect("below the length") = value.into();
                }
                drop(view);
                assert!(array.owners() <= 1, "written under other owners");
            }
            Op::Resize(_, shape) => self.resize(index, &shape.of()),
            Op::Detach(_, shape) => {
                let shape = shape.of();
                let Shared { array, model } = &mut self.shared[index];
                array.resize_detached(shape.clone()).expect("no limit");
                *model = resized(model, &shape);
            }
            _ => self.view(op, index),
        }
    }

    fn unique(&mut self, index: usize) {
        let Shared { array, model } = self.shared.swap_remove(index);
        let owners = array.owners();
        match array.try_unique() {
            Ok(array) => {
                assert!(owners <= 1, "unique beside {owners} owners");
                self.own(array, model);
            }
            Err(array) => self.hold(array, model),
        }
    }

    fn resize(&mut self, index: usize, shape: &IxDyn) {
        let Shared { array, model } = &mut self.shared[index];
        let owners = array.owners();
        match array.resize(shape.clone()) {
            Ok(()) => *model = resized(model, shape),
            Err(ArrayError::Shared { owners: seen }) => assert!(seen == owners && owners > 1),
            Err(error) => panic!("{error}"),
        }
    }

    /// A new view or a copy of a shared array.
    fn view(&mut self, op: Op, index: usize) {
        let Shared { array, model } = &self.shared[index];
        let ndim = model.ndim();
        let made = match op {
            Op::CloneShared(_) => Some((array.clone(), model.clone())),
            Op::Cut(_, cut) => cut.of(model.shape()).map(|(axis, slice)| {
                let cut = array.slice(slice_info(ndim, axis, slice));
                (cut, model.slice_axis(axis, slice).to_owned())
            }),
            Op::Transpose(_) => Some((array.t(), model.t().to_owned())),
            Op::Permute(_, turn) => {
                let mut axes: Vec<usize> = (0..ndim).collect();
                axes.rotate_left(usize::from(turn).checked_rem(ndim).unwrap_or(0));
                let permuted = array.permute(&axes).expect("a permutation");
                Some((permuted, model.clone().permuted_axes(axes)))
            }
            Op::Reverse(_, axis) => {
                let axis = Axis(usize::from(axis % 5));
                let reversed = array.reversed(axis);
                assert_eq!(reversed.is_ok(), axis.index() < ndim);
                reversed.ok().map(|reversed| {
                    let mut model = model.clone();
                    model.invert_axis(axis);
                    (reversed, model)
                })
            }
            Op::Reshape(_, shape) => {
                let shape = shape.for_len(model.len());
                let reshaped = array.reshape(shape.clone()).expect("as many elements");
                Some((reshaped, resized(model, &shape)))
            }
            Op::Broadcast(_, shape) => {
                let shape = shape.of();
                let wide = model.broadcast(shape.clone());
                let array = array.broadcast(shape);
                assert_eq!(array.is_ok(), wide.is_some());
                array.ok().zip(wide.map(|wide| wide.to_owned()))
            }
            Op::Diagonal(_) if ndim > 0 => {
                let diagonal = array.diagonal();
                assert!(diagonal.iter().eq(model.diag().iter()));
                None
            }
            Op::Copy(_) => {
                let copy = array.try_copy().expect("no limit");
                let model = model.clone();
                return self.own(copy, model);
            }
            _ => None,
        };
        if let Some((array, model)) = made {
            self.hold(array, model);
        }
    }

    /// `x * y - x` in a scope, of an owned and a shared input.
    fn scoped(&mut self, left: Pick, right: Pick) {
        let (Some(left), Some(right)) = (choose(&self.owned, left), choose(&self.shared, right))
        else {
            return;
        };
        let (left, right) = (&self.owned[left], &self.shared[right]);
        if left.model.shape() != right.model.shape() {
            return;
        }
        let (a, b) = (left.model.mapv(small), right.model.mapv(small));
        let array = self.pool.scope(|scope| {
            let (x, y) = (scope.lift(&left.array), scope.lift(&right.array));
            let (x, y) = (x.map(small), y.map(small));
            scope.returns((x * y - x).map(small))
        });
        let model = (&a * &b - &a).mapv(small);
        self.hold(array, model);
    }

    /// A share that goes into a scope and comes out again.
    fn scoped_through(&mut self, pick: Pick) {
        let Some(index) = choose(&self.shared, pick) else {
            return;
        };
        let Shared { array, model } = &self.shared[index];
        let (array, model) = (array.clone(), model.clone());
        let array = self.pool.scope(|scope| {
            let temp = scope.add_shared(array);
            scope.returns(temp.t())
        });
        self.hold(array, model.reversed_axes());
    }
}

type Info = ndarray::SliceInfo<Vec<ndarray::SliceInfoElem>, IxDyn, IxDyn>;

/// One axis cut, the others whole.
fn slice_info(ndim: usize, axis: Axis, slice: Slice) -> Info {
    let elements: Vec<ndarray::SliceInfoElem> = (0..ndim)
        .map(|at| {
            if at == axis.index() {
                slice.into()
            } else {
                (..).into()
            }
        })
        .collect();
    Info::try_from(elements).expect("dimensions are counted at run time")
}
