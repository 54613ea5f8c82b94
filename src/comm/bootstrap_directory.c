/* A store of files in a folder, for ranks that have no other. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "comm/bootstrap.h"
#include "comm/fault.h"

enum { FIRST_NAP_NS = 200000, LONGEST_NAP_NS = 2000000 };

/* A key's slashes become underlines. */
static uncopy_status_t path_of(const bootstrap_directory_t *directory, const char *key,
                               const char *ending, char path[PATH_MAX])
{
    int length = snprintf(path, PATH_MAX, "%s/%s%s", directory->path, key, ending);
    if (length < 0 || length >= PATH_MAX) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "path of key %s is too long", key);
    }
    for (char *c = path + strlen(directory->path) + 1; *c != '\0'; c++) {
        *c = *c == '/' ? '_' : *c;
    }
    return UNCOPY_OK;
}

static uncopy_status_t fail(const char *path, int error)
{
    return status_fail(UNCOPY_ERROR_SYSTEM, "%s: %s", path, strerror(error));
}

static uncopy_status_t set(void *self, const char *key, const void *value, size_t size)
{
    char path[PATH_MAX], unfinished[PATH_MAX];
    TRY(path_of(self, key, "", path));
    TRY(path_of(self, key, ".unfinished", unfinished));
    int file = open(unfinished, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0) {
        return fail(unfinished, errno);
    }
    ssize_t written = write(file, value, size);
    int error = written == (ssize_t)size ? 0 : (written < 0 ? errno : ENOSPC);
    if (close(file) != 0 && error == 0) {
        error = errno;
    }
    if (error == 0 && rename(unfinished, path) != 0) {
        error = errno;
    }
    if (error != 0) {
        (void)unlink(unfinished);
    }
    return error == 0 ? UNCOPY_OK : fail(path, error);
}

static uncopy_status_t read_value(const char *path, int file, void *value, size_t capacity,
                                  size_t *out_size)
{
    ssize_t size = read(file, value, capacity);
    int error = size < 0 ? errno : 0;
    (void)close(file);
    if (error != 0) {
        return fail(path, error);
    }
    *out_size = (size_t)size;
    return UNCOPY_OK;
}

static uncopy_status_t get(void *self, const char *key, int64_t timeout_ns, void *value,
                           size_t capacity, size_t *out_size)
{
    bootstrap_directory_t *directory = self;
    char path[PATH_MAX];
    TRY(path_of(directory, key, "", path));
    comm_deadline_t deadline = {.timeout_ns = timeout_ns, .interrupt = directory->interrupt};
    for (long nap_ns = FIRST_NAP_NS;;
         nap_ns = nap_ns < LONGEST_NAP_NS ? nap_ns * 2 : LONGEST_NAP_NS) {
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            return read_value(path, file, value, capacity, out_size);
        }
        if (errno == EACCES) {
            return status_fail(UNCOPY_ERROR_APART, "%s was written by another user", path);
        }
        if (errno != ENOENT) {
            return fail(path, errno);
        }
        uncopy_status_t status = fault_check_deadline(&deadline);
        if (status != UNCOPY_OK) {
            return status_fail(status, "%s did not appear within %.3f s%s", path,
                               (double)timeout_ns * 1e-9,
                               status == UNCOPY_ERROR_INTERRUPTED ? " (interrupted)" : "");
        }
        struct timespec nap = {.tv_nsec = nap_ns};
        (void)nanosleep(&nap, NULL);
    }
}

uncopy_comm_store_t bootstrap_directory_store(bootstrap_directory_t *directory)
{
    return (uncopy_comm_store_t){.self = directory, .set = set, .get = get};
}

void bootstrap_directory_remove(const bootstrap_directory_t *directory, const char *key)
{
    char path[PATH_MAX];
    if (path_of(directory, key, "", path) == UNCOPY_OK) {
        (void)unlink(path);
    }
}
