/* What starter.py is, where a C compiler was found (hatch_build.py): see there for what is said, and why. Linux alone.

   It ends where what it is sent does not parse, or memory is short: then its worker starts commands by other means. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ENVIRONMENT, REAP };
enum { BEGAN, REFUSED, ENDED, LEFT, RAN, HERE };
enum { STARTERS_MAX = 64, NEWS_AT_A_TIME = 8, AT_A_TIME = 16, FOUND_MAX = 16 };
enum { ORDER_BYTES_MAX = 32 * 1024, SAID_BYTES_MAX = 1 << 28 };
#define SOON_SECONDS 0.004
#define DEFAULT_PATH "/bin:/usr/bin"

struct order { uint64_t number; double asked; uint32_t environment, words, own, folder; };
struct said { uint32_t bytes, what; uint64_t number; };
struct news { uint64_t number; uint32_t what; int32_t first, second; } __attribute__((packed));
struct environment { struct environment *before; uint64_t number; size_t count; char **variables; };
struct found { char *path, *name, *place; };

static int worker, orders, home, away;
static sigset_t end_of_one, mask;
static struct environment *environments;
static char *received;
static size_t received_bytes, received_room;
static struct news news[NEWS_AT_A_TIME];
static int news_count, outputs[NEWS_AT_A_TIME], outputs_count;
static double send_at, looked;
static struct found found[FOUND_MAX];
static unsigned found_next;

/* Of so many of this size, and a byte more, with what was in them. */
static void *room(void *at, size_t count, size_t size) {
    if (count > SIZE_MAX / 2 / size || !(at = realloc(at, count * size + 1))) _exit(1);
    return at;
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* The start of the text after this one, which has to end before `end`. */
static char *after(char *text, char *end) {
    char *nul = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;
    if (!nul) _exit(1);
    return nul + 1;
}

/* Make NAME\0VALUE\0 one text, and give the start of the next. */
static char *joined(char *name, char *end) {
    char *value = after(name, end), *next = after(value, end);
    value[-1] = '=';
    return next;
}

static void send_news(void) {
    struct iovec data = {news, sizeof *news * (size_t)news_count};
    union { struct cmsghdr head; char bytes[CMSG_SPACE(sizeof outputs)]; } with;
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (outputs_count) {
        size_t bytes = sizeof *outputs * (size_t)outputs_count;
        message.msg_control = &with;
        message.msg_controllen = CMSG_SPACE(bytes);
        with.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&with.head), outputs, bytes);
    }
    while (data.iov_len) {
        ssize_t sent = sendmsg(worker, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) _exit(0); /* the worker has ended */
        data.iov_base = (char *)data.iov_base + sent;
        data.iov_len -= (size_t)sent;
        message.msg_control = NULL;
        message.msg_controllen = 0;
    }
    while (outputs_count) close(outputs[--outputs_count]);
    news_count = 0;
}

static void say(uint32_t what, uint64_t number, int32_t first, int32_t second) {
    double at = now();
    if (!news_count) send_at = at + SOON_SECONDS;
    news[news_count++] = (struct news){number, what, first, second};
    if (news_count == NEWS_AT_A_TIME || at >= send_at) send_news();
}

static void keep_environment(uint64_t number, const char *text, size_t bytes) {
    struct environment *one = room(NULL, 1, sizeof *one);
    char *at = memcpy(room(NULL, bytes, 1), text, bytes), *end = at + bytes;
    *one = (struct environment){environments, number, 0, NULL};
    one->variables = room(NULL, bytes / 2, sizeof *one->variables); /* each takes two bytes at least */
    for (; at < end; one->count++) {
        one->variables[one->count] = at;
        at = joined(at, end);
    }
    environments = one;
}

static const struct environment *environment_of(uint64_t number) {
    const struct environment *one = environments;
    while (one && one->number != number) one = one->before;
    return one;
}

/* Do what the worker says, if it says anything; or wait until it does. */
static void obey(int flags) {
    struct said said;
    size_t at = 0;
    if (received_room - received_bytes < 4096) received = room(received, received_room = received_room * 2 + 65536, 1);
    ssize_t got = recv(worker, received + received_bytes, received_room - received_bytes, flags);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) _exit(0);
    received_bytes += (size_t)got;
    for (; received_bytes - at >= sizeof said; at += sizeof said + said.bytes) {
        memcpy(&said, received + at, sizeof said);
        if (said.bytes > SAID_BYTES_MAX) _exit(1);
        if (received_bytes - at - sizeof said < said.bytes) break;
        if (said.what == ENVIRONMENT)
            keep_environment(said.number, received + at + sizeof said, said.bytes);
        else if (said.what == REAP && said.number > 0 && said.number <= INT32_MAX)
            waitpid((pid_t)said.number, NULL, 0);
        else
            _exit(1);
    }
    memmove(received, received + at, received_bytes -= at);
}

static void forget_ends(void) {
    static const struct timespec none;
    while (sigtimedwait(&end_of_one, NULL, &none) > 0) {}
}

/* The process; or below 0, why there is none. No signal has a handler here: there is none to be reset in the child. */
__attribute__((noinline)) static int start(const char *program, char **argv, char **env, int output) {
    volatile int error = 0;
    pid_t pid = vfork();
    if (pid == 0) {
        if (setsid() >= 0 && dup2(output, 1) == 1 && dup2(output, 2) == 2 && !sigprocmask(SIG_SETMASK, &mask, NULL))
            execve(program, argv, env);
        error = errno;
        _exit(127);
    }
    if (pid < 0) return -errno;
    if (!error) return pid;
    waitpid(pid, NULL, 0);
    forget_ends();
    return -error;
}

static int is_ours(int error) {
    return error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOSPC || error == EIO;
}

static char *copied(const char *text) {
    return strcpy(room(NULL, strlen(text), 1), text);
}

static void keep_place(struct found *at, struct found one) {
    free(at->path), free(at->name), free(at->place);
    *at = one;
}

static int start_sought(char **argv, char **env, int output) {
    const char *name = argv[0], *path = DEFAULT_PATH;
    int pid, failure = ENOENT;
    if (strchr(name, '/')) return start(name, argv, env, output);
    for (char **each = env; *each; each++)
        if (!strncmp(*each, "PATH=", 5)) path = *each + 5;
    for (struct found *known = found; known < found + FOUND_MAX; known++) {
        if (!known->name || strcmp(known->name, name) || strcmp(known->path, path)) continue;
        pid = start(known->place, argv, env, output);
        if (pid > 0 || is_ours(-pid)) return pid;
        keep_place(known, (struct found){0}); /* it was there a moment ago */
    }
    char *place = room(NULL, strlen(path) + strlen(name) + 2, 1);
    for (int executable = 1; executable >= 0; executable--)
        for (const char *folder = path, *end; folder; folder = *end ? end + 1 : NULL) {
            end = strchrnul(folder, ':');
            size_t bytes = (size_t)(end - folder);
            memcpy(place, folder, bytes);
            if (bytes) place[bytes++] = '/';
            strcpy(place + bytes, name);
            if (executable && access(place, X_OK)) continue;
            pid = start(place, argv, env, output);
            if (pid > 0 && *place == '/') /* and not from a folder that may be another's */
                keep_place(found + found_next++ % FOUND_MAX, (struct found){copied(path), copied(name), copied(place)});
            if (pid > 0 || is_ours(-pid)) goto done;
            if (failure == ENOENT || failure == ENOTDIR) failure = -pid;
        }
    pid = -failure;
done:
    free(place);
    return pid;
}

/* The exit code of a process that has ended, and keeps its number, below 0 for a signal; INT32_MIN before its end. */
static int exit_code(pid_t pid) {
    siginfo_t ended = {0};
    if (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT | WNOHANG) < 0) _exit(1);
    if (!ended.si_pid) return INT32_MIN;
    return ended.si_code == CLD_EXITED ? ended.si_status : -ended.si_status;
}

static void see_through(uint64_t number, pid_t pid, int output) {
    double until = now() + SOON_SECONDS, left = SOON_SECONDS;
    int code = INT32_MIN;
    for (; left > 0; left = until - now()) {
        struct timespec most = {0, (long)(left * 1e9)};
        siginfo_t came;
        if (sigtimedwait(&end_of_one, &came, &most) < 0) {
            if (errno == EINTR) continue;
            break;
        }
        if ((code = exit_code(pid)) == INT32_MIN) continue;
        if (came.si_pid != pid || came.si_code == CLD_STOPPED || came.si_code == CLD_CONTINUED) forget_ends();
        struct pollfd printed = {output, POLLIN, 0};
        if (poll(&printed, 1, 0) == 1 && printed.revents == POLLHUP) {
            close(output);
            kill(-pid, SIGKILL);
            waitpid(pid, NULL, 0);
            say(RAN, number, code, 0);
        } else {
            outputs[outputs_count++] = output;
            say(LEFT, number, pid, code);
        }
        return;
    }
    outputs[outputs_count++] = output;
    say(BEGAN, number, pid, 0);
    if (news_count) send_news();
    int descriptor = (int)syscall(SYS_pidfd_open, pid, 0);
    if (descriptor < 0) _exit(1);
    while ((code = exit_code(pid)) == INT32_MIN) {
        struct pollfd either[] = {{descriptor, POLLIN, 0}, {worker, POLLIN, 0}};
        poll(either, 2, -1);
        if (either[1].revents) obey(MSG_DONTWAIT);
    }
    close(descriptor);
    forget_ends();
    say(ENDED, number, code, 0);
}

static char **merged(const struct environment *inherited, char **own, size_t count) {
    static char **env;
    static size_t most;
    if (inherited->count + count >= most) env = room(env, most = (inherited->count + count) * 2 + 1, sizeof *env);
    memcpy(env, inherited->variables, inherited->count * sizeof *env);
    size_t all = inherited->count;
    for (size_t each = 0; each < count; each++) {
        size_t name = (size_t)(strchr(own[each], '=') - own[each]) + 1, at = 0;
        while (at < all && (env[at][0] != own[each][0] || strncmp(env[at], own[each], name))) at++;
        env[at] = own[each];
        all += at == all;
    }
    env[all] = NULL;
    return env;
}

static void carry_out(char *data, size_t bytes) {
    static char **texts;
    static size_t most;
    struct order order;
    char *at = data + sizeof order, *end = data + bytes, *folder = NULL;
    int pipes[2], pid;
    if (bytes < sizeof order) _exit(1);
    memcpy(&order, data, sizeof order);
    if (!order.words || order.words > bytes || order.own > bytes || order.folder > 1) _exit(1);
    size_t all = (size_t)order.words + order.own + 1;
    if (all > most) texts = room(texts, most = all * 2, sizeof *texts);
    for (uint32_t each = 0; each < order.words; each++, at = after(at, end)) texts[each] = at;
    texts[order.words] = NULL;
    char **own = texts + order.words + 1;
    for (uint32_t each = 0; each < order.own; each++) {
        own[each] = at;
        at = joined(at, end);
    }
    if (order.folder) {
        folder = at;
        at = after(at, end);
    }
    if (at != end) _exit(1);
    if (order.asked > looked) {
        looked = now();
        for (int each = 0; each < FOUND_MAX; each++) keep_place(found + each, (struct found){0});
    }
    const struct environment *inherited;
    while (!(inherited = environment_of(order.environment))) obey(0); /* it was said before */
    if (pipe2(pipes, O_CLOEXEC)) {
        say(REFUSED, order.number, errno, 0);
        return;
    }
    if (away && fchdir(home)) _exit(1);
    away = 0;
    int lost = folder && chdir(folder) ? errno : 0;
    away = folder && !lost;
    pid = lost ? -lost : start_sought(texts, merged(inherited, own, order.own), pipes[1]);
    close(pipes[1]);
    if (pid < 0) {
        close(pipes[0]);
        say(REFUSED, order.number, -pid, lost != 0);
    } else
        see_through(order.number, pid, pipes[0]);
}

/* Take a message, and the descriptors that come with it; gives its bytes. */
static ssize_t take(int from, void *data, size_t bytes, int *descriptors, size_t *count, int flags) {
    union { struct cmsghdr head; char bytes[CMSG_SPACE(sizeof(int) * STARTERS_MAX)]; } with;
    struct iovec into = {data, bytes};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = &with, .msg_controllen = sizeof with};
    size_t most = *count;
    ssize_t got = recvmsg(from, &message, flags | MSG_CMSG_CLOEXEC);
    *count = 0;
    if (got < 0) return got;
    if (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) _exit(1);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        *count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        if (*count > most) _exit(1);
        memcpy(descriptors, CMSG_DATA(head), *count * sizeof(int));
    }
    return got;
}

/* Carry out the next order; gives whether there was one. */
static int next(void) {
    static char data[ORDER_BYTES_MAX];
    int descriptor;
    size_t count = 1;
    ssize_t got = take(orders, data, sizeof data, &descriptor, &count, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) _exit(0);
    if (!count) {
        carry_out(data, (size_t)got);
        return 1;
    }
    struct stat file;
    if (fstat(descriptor, &file) || file.st_size <= 0) _exit(1);
    size_t bytes = (size_t)file.st_size;
    char *longer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
    if (longer == MAP_FAILED) _exit(1);
    close(descriptor);
    carry_out(longer, bytes);
    munmap(longer, bytes);
    return 1;
}

static void fork_others(void) {
    int others[STARTERS_MAX];
    size_t count = STARTERS_MAX;
    char byte;
    if (take(0, &byte, 1, others, &count, 0) <= 0) _exit(0);
    for (size_t each = 0; each < count; each++)
        if (!fork()) {
            dup2(others[each], 0);
            break;
        }
    while (count) close(others[--count]);
}

int main(void) {
    setsid(); /* what is meant for the group of the worker, as an interrupt at the terminal, is not for this one */
    signal(SIGPIPE, SIG_DFL); /* Python ignores these, and commands are not to */
    signal(SIGXFSZ, SIG_DFL);
    fork_others();
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    worker = fcntl(0, F_DUPFD_CLOEXEC, 3);
    orders = fcntl(1, F_DUPFD_CLOEXEC, 3);
    home = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (nothing < 0 || worker < 0 || orders < 0 || dup2(nothing, 0) || dup2(nothing, 1) != 1) return 1;
    close(nothing);
    sigemptyset(&end_of_one);
    sigaddset(&end_of_one, SIGCHLD);
    sigprocmask(SIG_BLOCK, &end_of_one, &mask);
    say(HERE, 0, getpid(), 0);
    send_news();
    for (;;) {
        obey(MSG_DONTWAIT);
        for (int each = 0; each < AT_A_TIME; each++)
            if (!next()) {
                if (news_count) send_news();
                struct pollfd either[] = {{orders, POLLIN, 0}, {worker, POLLIN, 0}};
                poll(either, 2, -1);
                break;
            }
    }
}
