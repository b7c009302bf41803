//! What this host offers for isolation, and where containers' cgroups go.
//!
//! Both sides need it: the controller reports it in `/health` and refuses to start without it, the launcher
//! puts containers there. It reads `/proc` and `/sys` and, on request, prepares a delegated cgroup v2 subtree.

mod cgroup;
mod files;
mod ids;
mod landlock;
mod owner;
mod probe;

pub use cgroup::{
    CGROUP_ROOT, CgroupError, CgroupHome, container_runs, kill_quietly, prepare, remove_of_slot,
    remove_stale, v1_controllers,
};
pub use files::{read_bounded, run_directory, write_file};
pub use ids::{HOST_ID_BASE, IDS_PER_SLOT, container_ids};
pub use landlock::{LANDLOCK_OLDEST, landlock_abi};
pub use owner::Owner;
pub use probe::{Isolation, isolation};
