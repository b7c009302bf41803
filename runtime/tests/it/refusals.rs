//! What the kernel must refuse a program in a container, each beside an allowed twin.

use serde_json::json as value;

use crate::support::{LIBC, json, printed, ready};

#[test]
fn no_new_namespace_by_any_call() {
    if !ready() {
        return;
    }
    let seen = json(&format!(
        "{LIBC}names = {{'time': 0x80, 'mnt': 0x20000, 'cgroup': 0x2000000, 'uts': 0x4000000, 'ipc': 0x8000000, 'user': 0x10000000, 'pid': 0x20000000, 'net': 0x40000000}}\n\
         unshared = {{name: refused(libc.unshare, flag) for name, flag in names.items()}}\n\
         def clone(flags):\n\
         \x20   pid = libc.syscall(56, flags | 17, 0, 0, 0, 0)\n\
         \x20   if pid == 0: os._exit(0)\n\
         \x20   if pid > 0: os.waitpid(pid, 0)\n\
         \x20   return pid\n\
         cloned = {{name: refused(clone, flag) for name, flag in names.items() if name != 'time'}}\n\
         cloned['all'] = refused(clone, 0x7e020000)\n\
         plain = refused(clone, 0)\n\
         own = os.open('/proc/self/ns/user', os.O_RDONLY)\n\
         print(json.dumps([unshared, cloned, refused(libc.syscall, 435, 0, 0), refused(libc.setns, own, 0), plain]))"
    ));
    // A nested user namespace would hold every capability and open the whole of the kernel's privileged surface.
    for (name, got) in seen[0].as_object().unwrap().iter().chain(seen[1].as_object().unwrap()) {
        assert_eq!(got, "EPERM", "{name}: {seen}");
    }
    assert_eq!(seen[4], "allowed", "a plain clone: {seen}");
    // ENOSYS makes the C library fall back to clone, whose flags the filter can read.
    assert_eq!((&seen[2], &seen[3]), (&value!("ENOSYS"), &value!("EPERM")));
}

#[test]
fn processes_and_threads_are_allowed() {
    if !ready() {
        return;
    }
    let code = "import os, threading\n\
        pid = os.fork()\n\
        if pid == 0: os._exit(3)\n\
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n\
        seen = []\n\
        thread = threading.Thread(target=lambda: seen.append(1)); thread.start(); thread.join()\n\
        print(status, seen)";
    assert_eq!(printed(code), "3 [1]");
}

/// A call that the filter does not know must look like one that the kernel does not have: libraries then fall back.
/// A call that is known and refused must not, or they would try another way to the same end.
#[test]
fn unknown_calls_do_not_exist_and_known_ones_are_forbidden() {
    if !ready() {
        return;
    }
    let seen = json(&format!(
        "{LIBC}unknown = {{n: refused(libc.syscall, n, 0, 0, 0, 0, 0, 0) for n in (390, 435, 453, 600, 1000, 0x3fffffff)}}\n\
         known = {{n: refused(libc.syscall, n, 0, 0, 0, 0, 0, 0) for n in (101, 155, 165, 250, 272, 298, 321, 323, 425, 430)}}\n\
         print(json.dumps([unknown, known, refused(libc.syscall, 39), refused(libc.syscall, 186)]))"
    ));
    for (number, got) in seen[0].as_object().unwrap() {
        assert_eq!(got, "ENOSYS", "call {number}: {seen}");
    }
    for (number, got) in seen[1].as_object().unwrap() {
        assert_eq!(got, "EPERM", "call {number}: {seen}");
    }
    assert_eq!((&seen[2], &seen[3]), (&value!("allowed"), &value!("allowed")), "getpid and gettid: {seen}");
}

/// Arguments are 64 bits wide for the filter and 32 for the kernel: garbage above must not open a way.
#[test]
fn garbage_above_an_argument_opens_nothing() {
    if !ready() {
        return;
    }
    let seen = json(&format!(
        "{LIBC}high = 1 << 32\n\
         L = ctypes.c_long\n\
         families = {{n: refused(libc.syscall, L(41), L(high | n), L(3), L(0)) for n in (0, 16, 17, 38, 40)}}\n\
         def clone(flags):\n\
         \x20   pid = libc.syscall(L(56), L(flags | 17), L(0), L(0), L(0), L(0))\n\
         \x20   if pid == 0: os._exit(0)\n\
         \x20   if pid > 0: os.waitpid(pid, 0)\n\
         \x20   return pid\n\
         user = refused(clone, high | 0x10000000)\n\
         print(json.dumps([families, user, refused(clone, 0), refused(libc.syscall, L(41), L(1), L(1), L(0))]))"
    ));
    for (family, got) in seen[0].as_object().unwrap() {
        assert_eq!(got, "EPERM", "family {family}: {seen}");
    }
    assert_eq!(seen[1], "EPERM", "{seen}");
    assert_eq!((&seen[2], &seen[3]), (&value!("allowed"), &value!("allowed")), "{seen}");
}

/// Numbers mean other calls in the x32 and 32-bit tables; a filter for one table must not be passed by another.
#[test]
fn other_call_tables_are_closed() {
    if !ready() {
        return;
    }
    let seen = json(
        "import ctypes, json, mmap, os\n\
         libc = ctypes.CDLL(None)\n\
         libc.syscall.restype = ctypes.c_long\n\
         def native(): return libc.syscall(ctypes.c_long(39))\n\
         def x32(): return libc.syscall(ctypes.c_long(0x40000000 + 39))\n\
         def ia32():\n\
         \x20   page = mmap.mmap(-1, 4096, prot=7)\n\
         \x20   page.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n\
         \x20   return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()\n\
         def end(call):\n\
         \x20   child = os.fork()\n\
         \x20   if child == 0: os._exit(0 if call() == os.getpid() else 1)\n\
         \x20   return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n\
         print(json.dumps([end(native), end(x32), end(ia32)]))",
    );
    assert_eq!(seen[0], 0, "the same call in the table that is open: {seen}");
    for (name, got) in [("x32", &seen[1]), ("ia32", &seen[2])] {
        // Killed by SIGSYS or, where the kernel lacks the table, refused or faulted. Never answered.
        assert_ne!(got, 0, "{name}: {seen}");
    }
}

#[test]
fn no_mount_and_no_other_root() {
    if !ready() {
        return;
    }
    let seen = json(&format!(
        "{LIBC}print(json.dumps({{\n\
         'mount': refused(libc.mount, b'none', b'/tmp', b'tmpfs', 0, None),\n\
         'bind': refused(libc.mount, b'/tmp', b'/tmp', None, 4096, None),\n\
         'remount': refused(libc.mount, None, b'/', None, 32, None),\n\
         'umount': refused(libc.umount2, b'/proc', 2),\n\
         'pivot_root': refused(libc.syscall, 155, b'/tmp', b'/tmp'),\n\
         'chroot': refused(libc.chroot, b'/tmp'),\n\
         'open_tree': refused(libc.syscall, 428, -100, b'/', 1),\n\
         'fsopen': refused(libc.syscall, 430, b'tmpfs', 0),\n\
         'move_mount': refused(libc.syscall, 429, -100, b'/tmp', -100, b'/tmp', 0)}}))"
    ));
    for (name, got) in seen.as_object().unwrap() {
        assert_eq!(got, "EPERM", "{name}");
    }
}

#[test]
fn no_reach_into_other_processes_or_the_kernel() {
    if !ready() {
        return;
    }
    let seen = json(&format!(
        "{LIBC}print(json.dumps({{\n\
         'ptrace': refused(libc.ptrace, 0, 0, None, None),\n\
         'process_vm_readv': refused(libc.syscall, 310, os.getpid(), 0, 0, 0, 0, 0),\n\
         'pidfd_getfd': refused(libc.syscall, 438, 0, 0, 0),\n\
         'bpf': refused(libc.syscall, 321, 0, 0, 0),\n\
         'perf_event_open': refused(libc.syscall, 298, 0, 0, 0, 0, 0),\n\
         'io_uring_setup': refused(libc.syscall, 425, 1, 0),\n\
         'userfaultfd': refused(libc.syscall, 323, 0),\n\
         'keyctl': refused(libc.syscall, 250, 0, 0, 0, 0, 0),\n\
         'add_key': refused(libc.syscall, 248, b'user', b'x', b'y', 1, -3),\n\
         'init_module': refused(libc.syscall, 175, 0, 0, b''),\n\
         'kexec_load': refused(libc.syscall, 246, 0, 0, 0, 0),\n\
         'open_by_handle_at': refused(libc.syscall, 304, 0, 0, 0),\n\
         'personality': refused(libc.syscall, 135, 0x0040000),\n\
         'sethostname': refused(libc.sethostname, b'x', 1),\n\
         'reboot': refused(libc.syscall, 169, 0, 0, 0, 0)}}))"
    ));
    for (name, got) in seen.as_object().unwrap() {
        assert_eq!(got, "EPERM", "{name}");
    }
}

#[test]
fn only_harmless_socket_families() {
    if !ready() {
        return;
    }
    let seen = json(
        "import errno, json, socket\n\
         def make(family, kind, protocol=0):\n\
         \x20   try:\n\
         \x20       socket.socket(family, kind, protocol).close()\n\
         \x20       return 'allowed'\n\
         \x20   except OSError as error:\n\
         \x20       return errno.errorcode[error.errno]\n\
         refused = {name: make(number, 3) for name, number in {'netlink': 16, 'packet': 17, 'alg': 38, 'vsock': 40, 'bluetooth': 31, 'xdp': 44}.items()}\n\
         refused['raw'] = make(2, 3, 1)\n\
         left, right = socket.socketpair()\n\
         left.sendall(b'hello')\n\
         print(json.dumps([refused, make(1, 1), make(2, 1), right.recv(5).decode()]))",
    );
    for (name, got) in seen[0].as_object().unwrap() {
        assert_eq!(got, "EPERM", "{name}");
    }
    assert_eq!(seen.as_array().unwrap()[1..], [value!("allowed"), value!("allowed"), value!("hello")]);
}

#[test]
fn kernel_files_are_masked_or_read_only() {
    if !ready() {
        return;
    }
    let seen = json(
        "import errno, json, os\n\
         def attempt(call):\n\
         \x20   try:\n\
         \x20       return call()\n\
         \x20   except OSError as error:\n\
         \x20       return errno.errorcode[error.errno]\n\
         def read(path): return attempt(lambda: len(open(path, 'rb').read(64)))\n\
         def write(path):\n\
         \x20   return attempt(lambda: os.write(os.open(path, os.O_WRONLY), b'1') and 'written')\n\
         masked = {p: read(p) for p in ['/proc/kcore', '/proc/keys', '/proc/timer_list', '/proc/interrupts', '/proc/sched_debug'] if os.path.exists(p)}\n\
         fixed = {p: write(p) for p in ['/proc/sys/kernel/hostname', '/proc/sys/kernel/core_pattern', '/proc/sys/vm/overcommit_memory',\n\
         \x20   '/proc/sys/user/max_user_namespaces', '/proc/sysrq-trigger', '/proc/1/uid_map']}\n\
         print(json.dumps([masked, fixed, read('/proc/self/status')]))",
    );
    // Which of these files there are depends on the kernel; /proc/keys is on every one that matters here.
    for (path, got) in seen[0].as_object().unwrap() {
        assert!(*got == 0 || *got == "EACCES" || *got == "EPERM", "{path}: {got}");
    }
    for (path, got) in seen[1].as_object().unwrap() {
        assert!(["EROFS", "EACCES", "EPERM", "ENOENT"].contains(&got.as_str().unwrap()), "{path}: {got}");
    }
    assert_eq!(seen[2], 64);
}

#[test]
fn devices_are_the_harmless_ones() {
    if !ready() {
        return;
    }
    let seen = json(&format!(
        "{LIBC}import stat\n\
         devices = {{}}\n\
         for name in sorted(os.listdir('/dev')):\n\
         \x20   found = os.lstat('/dev/' + name)\n\
         \x20   if (stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)):\n\
         \x20       devices[name] = [os.major(found.st_rdev), os.minor(found.st_rdev)]\n\
         made = refused(libc.mknod, b'/tmp/disk', stat.S_IFBLK | 0o600, os.makedev(8, 0))\n\
         open('/dev/null', 'w').write('x')\n\
         print(json.dumps([devices, made, len(open('/dev/urandom', 'rb').read(8))]))"
    ));
    let known = value!({"full": [1, 7], "null": [1, 3], "random": [1, 8], "tty": [5, 0], "urandom": [1, 9], "zero": [1, 5]});
    for (name, numbers) in seen[0].as_object().unwrap() {
        assert_eq!(Some(numbers), known.get(name), "/dev/{name}");
    }
    // Landlock, where it is there, is asked first.
    assert!(["EPERM", "EACCES"].contains(&seen[1].as_str().unwrap()), "{seen}");
    assert_eq!(seen[2], 8);
}
