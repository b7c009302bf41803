//! Where the interpreter's small objects lie: in one region of huge pages.
//!
//! Each container copies this process twice, and a copy is made page by page: of what is in huge pages, one entry for
//! five hundred. A copy that writes to one gets small pages for that part, so it has no more memory than before.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::io;
use std::ptr;

/// Room for the objects of everything that a launcher imports; what a program needs beyond lies elsewhere.
const REGION: usize = 64 << 20;
const HUGE: usize = 2 << 20;

/// The library's `PyObjectArenaAllocator`.
#[repr(C)]
struct Allocator {
    context: *mut c_void,
    allocate: extern "C" fn(*mut c_void, usize) -> *mut c_void,
    release: extern "C" fn(*mut c_void, *mut c_void, usize),
}

/// The part of the region that is not handed out yet.
struct Region(UnsafeCell<(usize, usize)>);

// SAFETY: it is used by the interpreter alone, whose lock keeps its threads apart.
unsafe impl Sync for Region {}

static REST: Region = Region(UnsafeCell::new((0, 0)));

/// Has an interpreter that is not started yet take its memory from here.
pub(super) fn provide(setter: *mut c_void) -> Result<(), String> {
    let start = map(REGION + HUGE).map_err(|error| format!("no memory for an interpreter: {error}"))?;
    let aligned = start.next_multiple_of(HUGE);
    // Where the kernel has no huge pages, or not for everybody, they are small.
    advise(aligned, REGION, libc::MADV_HUGEPAGE).unwrap_or_default();
    let mut allocator = Allocator { context: ptr::null_mut(), allocate, release };
    // SAFETY: the address is that of `void PyObject_SetArenaAllocator(PyObjectArenaAllocator *)`, which copies the
    // structure; no arena exists yet, and this is the only thread.
    unsafe {
        *REST.0.get() = (aligned, aligned + REGION);
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Allocator)>(setter)(&raw mut allocator);
    }
    Ok(())
}

/// Everything is imported: what is not used of the region is given back, and what is allocated from now on, by copies
/// of this process, is small.
pub(crate) fn settle() -> Result<(), String> {
    // SAFETY: nothing else runs; this is the only thread.
    let (start, end) = unsafe { std::mem::take(&mut *REST.0.get()) };
    if start == end {
        return Ok(());
    }
    // SAFETY: the rest of a mapping of ours, of which no address was handed out.
    let result = unsafe { libc::munmap(start as *mut c_void, end - start) };
    if result == 0 { Ok(()) } else { Err(format!("munmap: {}", io::Error::last_os_error())) }
}

fn map(length: usize) -> io::Result<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let address = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address as usize) }
}

fn advise(address: usize, length: usize, advice: i32) -> io::Result<()> {
    // SAFETY: callers name mappings of their own and advice that changes no content that is in use.
    let result = unsafe { libc::madvise(address as *mut c_void, length, advice) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn allocate(_: *mut c_void, length: usize) -> *mut c_void {
    // SAFETY: the interpreter's lock is held, see `Region`.
    let rest = unsafe { &mut *REST.0.get() };
    if rest.1 - rest.0 >= length {
        let address = rest.0;
        rest.0 += length;
        return address as *mut c_void;
    }
    map(length).map_or(ptr::null_mut(), |address| address as *mut c_void)
}

extern "C" fn release(_: *mut c_void, address: *mut c_void, length: usize) {
    // SAFETY: the interpreter gives back what it got from `allocate`, whole and once.
    let result = unsafe { libc::munmap(address, length) };
    debug_assert_eq!(result, 0, "what was mapped can be unmapped");
}
