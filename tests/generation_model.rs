//! An explicit-state model of the generation protocol: every interleaving of owners, handles,
//! recycling, forced release and retirement, for more threads than loom can run. It is written
//! from `docs/protocol.md` and shares no code with the kernel; sequential consistency is enough,
//! since all that the protocol decides is decided on one word.

use std::collections::{HashSet, VecDeque};

/// What the model varies.
#[derive(Clone, Copy, Debug)]
struct Config {
    threads: usize,
    /// Lives of the control block that the model goes through before it stops.
    lives: u8,
    /// Generations are counted modulo this.
    modulus: u8,
    /// Whether a CAS is two steps, a look and an exchange that may fail. One step says the same,
    /// as the exchange compares all that was looked at, and leaves room for more threads.
    looks: bool,
    /// Whether owners may force a release.
    forced: bool,
    /// The last generation, after which the block retires; `None` wraps around instead.
    last: Option<u8>,
}

/// What a thread is about to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Thread {
    /// Holds no share, and a handle of life `of` that it may upgrade.
    Handle { of: u8 },
    /// Has looked at the word, found it good, and is before its CAS.
    Upgrading { of: u8, count: i8, generation: u8 },
    /// Owns a share of life `of`.
    Owner { of: u8 },
    /// Has the block to itself, and will recycle it.
    Unique,
    /// Has looked at the word before a forced release of life `of`, and is before its CAS.
    Forcing { of: u8, count: i8, generation: u8 },
}

/// The word, and what a checker may know beyond it. Threads are sorted: they are all alike.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    count: i8,
    generation: u8,
    /// The life that the word is really in; the protocol does not see it.
    life: u8,
    /// Forced out: owners of this life may not act.
    forced: bool,
    retired: bool,
    threads: Vec<Thread>,
}

impl World {
    /// Thread 0 owns life 1, the others have handles of it.
    fn start(config: Config) -> Self {
        let mut threads = vec![Thread::Handle { of: 1 }; config.threads];
        threads[0] = Thread::Owner { of: 1 };
        threads.sort();
        Self {
            count: 0,
            generation: 1 % config.modulus,
            life: 1,
            forced: false,
            retired: false,
            threads,
        }
    }

    fn with(&self, index: usize, thread: Thread, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        next.threads[index] = thread;
        change(&mut next);
        let (life, forced) = (next.life, next.forced);
        for thread in &mut next.threads {
            // Who is forced out may not act any more, but as a handle.
            match *thread {
                Thread::Owner { of } if of < life || forced => *thread = Thread::Handle { of },
                _ => (),
            }
        }
        next.threads.sort();
        next
    }

    /// Worlds that one step of thread `index` can lead to.
    fn steps(&self, index: usize, config: Config, next: &mut Vec<Self>) {
        let generation_of = |life: u8| life % config.modulus;
        let me = self.threads[index];
        match me {
            Thread::Handle { of } => {
                // T4 changes nothing. A handle may also be copied anew from the current life.
                if self.generation == generation_of(of) && self.count >= 0 {
                    let (count, generation) = (self.count, self.generation);
                    next.push(if config.looks {
                        let upgrading = Thread::Upgrading {
                            of,
                            count,
                            generation,
                        };
                        self.with(index, upgrading, |_| ())
                    } else {
                        self.upgrade(index, of)
                    });
                }
                if of != self.life && self.count >= 0 {
                    let fresh = Thread::Handle { of: self.life };
                    next.push(self.with(index, fresh, |_| ()));
                }
            }
            Thread::Upgrading {
                of,
                count,
                generation,
            } => {
                if (self.count, self.generation) == (count, generation) {
                    next.push(self.upgrade(index, of));
                } else {
                    // The CAS fails, and the handle looks again.
                    next.push(self.with(index, Thread::Handle { of }, |_| ()));
                }
            }
            Thread::Owner { of } => {
                // T5, T6.
                let then = if self.count == 0 {
                    Thread::Unique
                } else {
                    Thread::Handle { of }
                };
                next.push(self.with(index, then, |world| world.count -= 1));
                // T7.
                if (self.count, self.generation) == (0, generation_of(of)) {
                    next.push(self.with(index, Thread::Unique, |world| world.count -= 1));
                }
                // T8, or the look before it.
                let (count, generation) = (self.count, self.generation);
                if config.forced && generation == generation_of(of) {
                    next.push(if config.looks {
                        let forcing = Thread::Forcing {
                            of,
                            count,
                            generation,
                        };
                        self.with(index, forcing, |_| ())
                    } else {
                        self.force(index)
                    });
                }
            }
            Thread::Unique => {
                // T10 or T1: the unique owner shares the block's next life.
                if config.last == Some(self.generation) {
                    let done = Thread::Handle { of: self.life };
                    next.push(self.with(index, done, |world| world.retired = true));
                } else if self.life < config.lives {
                    let of = self.life + 1;
                    next.push(self.with(index, Thread::Owner { of }, |world| {
                        world.life = of;
                        world.generation = generation_of(of);
                        world.count = 0;
                        world.forced = false;
                    }));
                }
            }
            Thread::Forcing {
                of,
                count,
                generation,
            } => {
                if (self.count, self.generation) == (count, generation) {
                    next.push(self.force(index));
                } else {
                    // The CAS fails: the thread looks again, and finds itself an owner or forced out.
                    let owns = self.owns(of);
                    let then = if owns {
                        Thread::Owner { of }
                    } else {
                        Thread::Handle { of }
                    };
                    next.push(self.with(index, then, |_| ()));
                }
            }
        }
    }

    /// T3.
    fn upgrade(&self, index: usize, of: u8) -> Self {
        self.with(index, Thread::Owner { of }, |world| world.count += 1)
    }

    /// T8: whoever else owned the block does not act any more.
    fn force(&self, index: usize) -> Self {
        self.with(index, Thread::Unique, |world| {
            world.count = -1;
            world.forced = true;
        })
    }

    /// Whether a share of life `of` still is one.
    fn owns(&self, of: u8) -> bool {
        of == self.life && !self.forced
    }

    /// What must hold in every world.
    fn check(&self, config: Config) -> Result<(), String> {
        let mut owners = 0;
        let mut unique = 0;
        for thread in &self.threads {
            match *thread {
                Thread::Owner { of } | Thread::Forcing { of, .. } => {
                    owners += i8::from(self.owns(of));
                }
                Thread::Unique => unique += 1,
                Thread::Handle { .. } | Thread::Upgrading { .. } => {}
            }
        }
        if unique > 1 || (unique == 1 && self.count >= 0) {
            return Err(format!(
                "{unique} unique owners beside a count of {}",
                self.count
            ));
        }
        if owners != self.count + 1 {
            return Err(format!("{owners} owners, but a count of {}", self.count));
        }
        if unique == 0 && owners == 0 && !self.retired {
            return Err("leaked: nobody will give the block back".to_owned());
        }
        if self.retired && (self.count >= 0 || unique > 0) {
            return Err("in use after it has retired".to_owned());
        }
        if config.last.is_some_and(|last| self.life > last) {
            return Err("a life after the last generation".to_owned());
        }
        Ok(())
    }
}

/// What a search found.
#[derive(Debug)]
struct Found {
    worlds: usize,
    retired: usize,
    stale: usize,
}

/// Breadth first through every world. An error tells the fault and how many steps lead to it.
fn search(config: Config) -> Result<Found, (String, usize)> {
    let start = World::start(config);
    let mut seen = HashSet::from([start.clone()]);
    let mut queue = VecDeque::from([(start, 0)]);
    let mut found = Found {
        worlds: 0,
        retired: 0,
        stale: 0,
    };
    let mut next = Vec::new();
    while let Some((world, depth)) = queue.pop_front() {
        world.check(config).map_err(|fault| (fault, depth))?;
        found.worlds += 1;
        found.retired += usize::from(world.retired);
        let stale = |thread: &Thread| matches!(thread, Thread::Handle { of } if *of < world.life);
        found.stale += usize::from(world.threads.iter().any(stale));
        for index in 0..config.threads {
            let alike = index > 0 && world.threads[index] == world.threads[index - 1];
            if !alike {
                world.steps(index, config, &mut next);
            }
        }
        for world in next.drain(..) {
            if seen.insert(world.clone()) {
                queue.push_back((world, depth + 1));
            }
        }
    }
    Ok(found)
}

#[test]
fn the_protocol_holds_with_many_threads() {
    for (threads, lives, looks, forced) in [
        (16, 6, false, true),
        (8, 3, true, false),
        (5, 4, true, true),
    ] {
        let config = Config {
            threads,
            lives,
            modulus: u8::MAX,
            looks,
            forced,
            last: None,
        };
        let found = search(config).unwrap();
        println!("{config:?}: {found:?}");
        assert!(found.worlds > 10_000 && found.stale > 1_000, "{found:?}");
    }
}

#[test]
fn a_block_at_its_last_generation_retires() {
    let config = Config {
        threads: 5,
        lives: 9,
        modulus: u8::MAX,
        looks: true,
        forced: true,
        last: Some(3),
    };
    let found = search(config).unwrap();
    println!("{found:?}");
    assert!(found.retired > 100, "{found:?}");
}

/// Two bits of generation that retire are safe; two bits that wrap accept a handle of the life
/// four lives ago.
#[test]
fn a_generation_that_wraps_fails() {
    let retiring = Config {
        threads: 3,
        lives: 9,
        modulus: 4,
        looks: true,
        forced: true,
        last: Some(3),
    };
    assert!(search(retiring).unwrap().retired > 0);
    let wrapping = Config {
        last: None,
        ..retiring
    };
    let (fault, steps) = search(wrapping).unwrap_err();
    println!("after {steps} steps: {fault}");
    assert!(fault.contains("owners, but a count of"), "{fault}");
}

/// The model finds what it must: an owner that acts although it was forced out.
#[test]
fn the_checks_find_planted_faults() {
    let config = Config {
        threads: 3,
        lives: 3,
        modulus: u8::MAX,
        looks: true,
        forced: true,
        last: Some(3),
    };
    let good = World::start(config);
    assert_eq!(good.check(config), Ok(()));
    let fault = |plant: fn(&mut World)| {
        let mut world = good.clone();
        plant(&mut world);
        world.check(config).unwrap_err()
    };
    let owner = |thread: &Thread| matches!(thread, Thread::Owner { .. });
    assert!(good.threads.iter().any(owner));
    assert!(fault(|world| world.count = 1).contains("1 owners"));
    assert!(fault(|world| world.threads = vec![Thread::Unique; 2]).contains("2 unique"));
    assert!(fault(|world| world.retired = true).contains("retired"));
    assert!(fault(|world| world.life = 4).contains("owners"));
    assert!(
        fault(|world| {
            world.count = -1;
            world.threads = vec![Thread::Handle { of: 1 }; 3];
        })
        .contains("leaked")
    );
}
