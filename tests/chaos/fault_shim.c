/* Faults of disk, descriptors and clock, switched on and off from outside while a process runs.
 *
 * A test maps the page named by MAINSTEM_FAULT_PAGE and writes the fields of `struct faults`
 * (fault_shim.py has the same layout). Only files below MAINSTEM_FAULT_FOLDER are concerned.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct faults {
    volatile int32_t sync_stalls;
    volatile int32_t sync_fails;
    volatile int32_t read_fails;
    volatile int32_t no_descriptors;
    volatile int64_t wall_offset_ns;
    volatile int64_t hits;
};

static struct faults none;
static struct faults *faults = &none;
static char folder[4096];

__attribute__((constructor)) static void map_page(void)
{
    const char *path = getenv("MAINSTEM_FAULT_PAGE");
    const char *below = getenv("MAINSTEM_FAULT_FOLDER");
    if (below)
        snprintf(folder, sizeof folder, "%s", below);
    if (!path)
        return;
    int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int fd = real_open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *page = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED)
        faults = page;
}

static void hit(void) { __sync_fetch_and_add(&faults->hits, 1); }

static int is_ours(const char *path) { return folder[0] && path && strncmp(path, folder, strlen(folder)) == 0; }

static int is_our_file(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return is_ours(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int sync_fault(void)
{
    if (faults->sync_stalls)
        hit();
    while (faults->sync_stalls)
        usleep(10000);
    if (!faults->sync_fails)
        return 0;
    hit();
    errno = EIO;
    return -1;
}

int fsync(int fd) { return sync_fault() ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return sync_fault() ? -1 : REAL(fdatasync)(fd); }
int syncfs(int fd) { return sync_fault() ? -1 : REAL(syncfs)(fd); }

static int read_fault(int fd)
{
    if (!faults->read_fails || !is_our_file(fd))
        return 0;
    hit();
    errno = EIO;
    return -1;
}

ssize_t pread(int fd, void *into, size_t count, off_t at)
{
    return read_fault(fd) ? -1 : REAL(pread)(fd, into, count, at);
}
ssize_t pread64(int fd, void *into, size_t count, off64_t at)
{
    return read_fault(fd) ? -1 : REAL(pread64)(fd, into, count, at);
}
ssize_t preadv(int fd, const struct iovec *into, int count, off_t at)
{
    return read_fault(fd) ? -1 : REAL(preadv)(fd, into, count, at);
}
ssize_t preadv64(int fd, const struct iovec *into, int count, off64_t at)
{
    return read_fault(fd) ? -1 : REAL(preadv64)(fd, into, count, at);
}
ssize_t sendfile(int to, int from, off_t *at, size_t count)
{
    return read_fault(from) ? -1 : REAL(sendfile)(to, from, at, count);
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t count)
{
    return read_fault(from) ? -1 : REAL(sendfile64)(to, from, at, count);
}

static int open_fault(const char *path)
{
    if (!faults->no_descriptors || !is_ours(path))
        return 0;
    hit();
    errno = EMFILE;
    return -1;
}

#define OPEN_AT(name)                                                                              \
    int name(int dir, const char *path, int flags, ...)                                            \
    {                                                                                              \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = va_arg(more, mode_t);                                                        \
        va_end(more);                                                                              \
        return open_fault(path) ? -1 : REAL(name)(dir, path, flags, mode);                         \
    }
#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = va_arg(more, mode_t);                                                        \
        va_end(more);                                                                              \
        return open_fault(path) ? -1 : REAL(name)(path, flags, mode);                              \
    }
OPEN(open)
OPEN(open64)
OPEN_AT(openat)
OPEN_AT(openat64)

int accept4(int fd, struct sockaddr *from, socklen_t *size, int flags)
{
    if (faults->no_descriptors) {
        hit();
        errno = EMFILE;
        return -1;
    }
    return REAL(accept4)(fd, from, size, flags);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, now);
    int64_t offset = faults->wall_offset_ns;
    if (status == 0 && offset && clock == CLOCK_REALTIME) {
        int64_t moved = now->tv_sec * 1000000000LL + now->tv_nsec + offset;
        now->tv_sec = moved / 1000000000LL;
        now->tv_nsec = moved % 1000000000LL;
    }
    return status;
}
