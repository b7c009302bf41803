//! Applying edits to an OCI spec.
//!
//! What a device brings goes after what the bundle has, and replaces what stands at the same place: an environment
//! variable of the same name, a node or a mount at the same path.

use oci_spec::runtime::{
    HookBuilder, Hooks, Linux, LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroupBuilder,
    LinuxIntelRdtBuilder, LinuxNetDevice, Mount, MountBuilder, Process, Spec,
};

use super::document::{Edits, Hook, HookName, IntelRdt, Mount as DescribedMount};
use super::error::CdiError;
use super::node::Node;
use super::registry::Selection;

/// How nodes come into the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nodes {
    /// Made by `mknod`.
    Made,
    /// The host's own node, bound: no `mknod` in a user namespace or without root.
    Bound,
}

impl Nodes {
    /// The way that this caller has.
    pub(super) fn for_caller(user_namespace: bool) -> Self {
        if user_namespace || !nix::unistd::geteuid().is_root() { Self::Bound } else { Self::Made }
    }
}

/// Applies everything that was selected, in order.
pub(super) fn apply(spec: &mut Spec, selection: &Selection<'_>, nodes: Nodes) -> Result<(), CdiError> {
    for (device, edits) in selection {
        let mut editor = Editor { spec, device, nodes };
        editor.apply(edits)?;
    }
    Ok(())
}

struct Editor<'a> {
    spec: &'a mut Spec,
    device: &'a str,
    nodes: Nodes,
}

impl Editor<'_> {
    fn wrong(&self, reason: impl std::fmt::Display) -> CdiError {
        CdiError::Spec { device: self.device.into(), reason: reason.to_string() }
    }

    fn process(&mut self) -> Result<&mut Process, CdiError> {
        let missing = self.wrong("config.json has no process section");
        self.spec.process_mut().as_mut().ok_or(missing)
    }

    fn linux(&mut self) -> &mut Linux {
        self.spec.linux_mut().get_or_insert_default()
    }

    fn apply(&mut self, edits: &Edits) -> Result<(), CdiError> {
        if !edits.env.is_empty() {
            set_environment(self.process()?.env_mut().get_or_insert_default(), &edits.env);
        }
        for described in &edits.device_nodes {
            let node = Node::of(described).map_err(|reason| CdiError::Node {
                device: self.device.into(),
                node: described.path.clone(),
                reason,
            })?;
            self.add_node(&node)?;
        }
        for device in &edits.net_devices {
            let mut inside = LinuxNetDevice::default();
            inside.set_name(Some(device.name.clone()));
            let all = self.linux().net_devices_mut().get_or_insert_default();
            all.insert(device.host_interface_name.clone(), inside);
        }
        let mut mounts: Vec<_> = edits.mounts.iter().collect();
        // A directory before what lies in it, in whichever order they were written.
        mounts.sort_by_key(|mount| mount.container_path.components().count());
        for mount in mounts {
            let mount = self.described_mount(mount)?;
            self.add_mount(mount);
        }
        for hook in &edits.hooks {
            self.add_hook(hook)?;
        }
        if let Some(rdt) = &edits.intel_rdt {
            let rdt = self.intel_rdt(rdt)?;
            self.linux().set_intel_rdt(Some(rdt));
        }
        self.add_groups(&edits.additional_gids)
    }

    fn add_node(&mut self, node: &Node) -> Result<(), CdiError> {
        match self.nodes {
            Nodes::Made => {
                let device = self.linux_device(node)?;
                let devices = self.linux().devices_mut().get_or_insert_default();
                devices.retain(|other| other.path() != &node.path);
                devices.push(device);
            }
            Nodes::Bound => {
                if !node.host.exists() {
                    return Err(CdiError::Node {
                        device: self.device.into(),
                        node: node.path.clone(),
                        reason: format!("there is no {} on the host to bind", node.host.display()),
                    });
                }
                let options = ["bind", "nosuid", "noexec", "private", "rw"].map(str::to_owned).to_vec();
                let mount = MountBuilder::default()
                    .source(&node.host)
                    .destination(&node.path)
                    .typ("bind")
                    .options(options)
                    .build()
                    .map_err(|error| self.wrong(error))?;
                self.add_mount(mount);
            }
        }
        if node.has_rule() {
            let rule = LinuxDeviceCgroupBuilder::default()
                .allow(true)
                .typ(node.kind)
                .major(node.major)
                .minor(node.minor)
                .access(node.access.clone())
                .build()
                .map_err(|error| self.wrong(error))?;
            let resources = self.linux().resources_mut().get_or_insert_default();
            resources.devices_mut().get_or_insert_default().push(rule);
        }
        Ok(())
    }

    fn linux_device(&mut self, node: &Node) -> Result<LinuxDevice, CdiError> {
        // A program that does not run as root has to be able to open its own device.
        let user = self.process()?.user().clone();
        let own = |id: u32| (id > 0).then_some(id);
        let mut device = LinuxDeviceBuilder::default()
            .path(&node.path)
            .typ(node.kind)
            .major(node.major)
            .minor(node.minor)
            .build()
            .map_err(|error| self.wrong(error))?;
        device.set_file_mode(node.mode);
        device.set_uid(node.uid.or_else(|| own(user.uid())));
        device.set_gid(node.gid.or_else(|| own(user.gid())));
        Ok(device)
    }

    fn described_mount(&self, described: &DescribedMount) -> Result<Mount, CdiError> {
        let kind = described.kind.clone().filter(|kind| !kind.is_empty()).unwrap_or_else(|| "bind".into());
        let mut options = described.options.clone();
        if kind == "bind" && !options.iter().any(|option| option == "bind" || option == "rbind") {
            options.push("bind".into());
        }
        MountBuilder::default()
            .source(&described.host_path)
            .destination(&described.container_path)
            .typ(kind)
            .options(options)
            .build()
            .map_err(|error| self.wrong(error))
    }

    fn add_mount(&mut self, mount: Mount) {
        let mounts = self.spec.mounts_mut().get_or_insert_default();
        mounts.retain(|other| other.destination() != mount.destination());
        mounts.push(mount);
    }

    fn add_hook(&mut self, described: &Hook) -> Result<(), CdiError> {
        let mut hook =
            HookBuilder::default().path(&described.path).build().map_err(|error| self.wrong(error))?;
        if !described.args.is_empty() {
            hook.set_args(Some(described.args.clone()));
        }
        if !described.env.is_empty() {
            hook.set_env(Some(described.env.clone()));
        }
        hook.set_timeout(described.timeout);
        let hooks = self.spec.hooks_mut().get_or_insert_default();
        hooks_of(hooks, described.hook_name).get_or_insert_default().push(hook);
        Ok(())
    }

    fn intel_rdt(&self, rdt: &IntelRdt) -> Result<oci_spec::runtime::LinuxIntelRdt, CdiError> {
        let mut builder = LinuxIntelRdtBuilder::default();
        if let Some(id) = &rdt.clos_id {
            builder = builder.clos_id(id);
        }
        if let Some(schema) = &rdt.l3_cache_schema {
            builder = builder.l3_cache_schema(schema);
        }
        if let Some(schema) = &rdt.mem_bw_schema {
            builder = builder.mem_bw_schema(schema);
        }
        if !rdt.schemata.is_empty() {
            builder = builder.schemata(rdt.schemata.clone());
        }
        // The two older switches have become one.
        if rdt.enable_monitoring || rdt.enable_cmt || rdt.enable_mbm {
            builder = builder.enable_monitoring(true);
        }
        builder.build().map_err(|error| self.wrong(error))
    }

    fn add_groups(&mut self, gids: &[u32]) -> Result<(), CdiError> {
        if gids.is_empty() {
            return Ok(());
        }
        if self.nodes == Nodes::Bound {
            tracing::warn!(
                device = self.device,
                ?gids,
                "these groups are the container's own and give no right to a node of the host"
            );
        }
        let mut user = self.process()?.user().clone();
        let groups = user.additional_gids_mut().get_or_insert_default();
        for gid in gids.iter().filter(|gid| **gid != 0) {
            if !groups.contains(gid) {
                groups.push(*gid);
            }
        }
        self.process()?.set_user(user);
        Ok(())
    }
}

fn set_environment(environment: &mut Vec<String>, entries: &[String]) {
    for entry in entries {
        let name = |text: &str| text.split('=').next().unwrap_or_default().to_owned();
        let wanted = name(entry);
        environment.retain(|other| name(other) != wanted);
        environment.push(entry.clone());
    }
}

fn hooks_of(hooks: &mut Hooks, name: HookName) -> &mut Option<Vec<oci_spec::runtime::Hook>> {
    match name {
        HookName::Prestart => hooks.prestart_mut(),
        HookName::CreateRuntime => hooks.create_runtime_mut(),
        HookName::CreateContainer => hooks.create_container_mut(),
        HookName::StartContainer => hooks.start_container_mut(),
        HookName::Poststart => hooks.poststart_mut(),
        HookName::Poststop => hooks.poststop_mut(),
    }
}
