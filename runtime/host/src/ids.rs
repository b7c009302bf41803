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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_launchers_share_an_id() {
        let range = |slot: u16| {
            let first = u64::from(HOST_ID_BASE) + u64::from(slot) * u64::from(IDS_PER_SLOT);
            first..first + u64::from(IDS_PER_SLOT)
        };
        for slot in 0..50_000 {
            assert!(range(slot).end <= range(slot + 1).start);
        }
        assert!(range(50_000).end <= u64::from(u32::MAX), "ids are 32 bits wide");
    }
}
