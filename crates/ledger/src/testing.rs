//! Simulation for the crash tests: a disk that loses unsynced data, a seeded random number generator, and a driver with an
//! oracle.

pub mod driver;
pub mod rng;
pub mod scratch;
pub mod sim_disk;
pub mod workload;
