//! `RefCount`: placeholder until the helper's commit.
