//! Which host ids a container gets. Each launcher has a range of its own, so that two containers share no id: no
//! shared per-user limit, no signal, no key ring between them.

/// Host ids given to containers start here: above the ranges that distributions hand out as subordinate ids.
pub const HOST_ID_BASE: u32 = 1_000_000_000;
/// Ids of one launcher.
pub const IDS_PER_SLOT: u32 = 65_536;

/// The host's user and group id of a container user under a launcher; `None` where the container runs as the caller.
pub fn container_ids(slot: u16, id: u32) -> Option<(u32, u32)> {
    let first = HOST_ID_BASE + u32::from(slot) * IDS_PER_SLOT;
    nix::unistd::geteuid().is_root().then_some((first + id, first + id))
}
