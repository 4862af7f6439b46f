/* A lying disk: every call that should force data out says yes and does nothing. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

int fsync(int fd) { (void)fd; return 0; }
int fdatasync(int fd) { (void)fd; return 0; }
int syncfs(int fd) { (void)fd; return 0; }
void sync(void) {}
int sync_file_range(int fd, off64_t from, off64_t count, unsigned int flags)
{ (void)fd; (void)from; (void)count; (void)flags; return 0; }
int msync(void *start, size_t count, int flags) { (void)start; (void)count; (void)flags; return 0; }
