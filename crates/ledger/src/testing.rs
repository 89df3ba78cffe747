//! What the crash tests stand on: a disk that forgets, a seeded source of chance, and a driver with an oracle.

pub mod driver;
pub mod rng;
pub mod scratch;
pub mod sim_disk;
pub mod workload;
