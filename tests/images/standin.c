/* One static program that stands in for the images that policies and their fixtures name (nginx, busybox, curl).
   It acts by the name it is called by, or, called `standin`, by its first argument:

     nginx                  prints the files under /etc/nginx to standard output, then waits
     cat FILE...            prints files
     ls [DIRECTORY]         lists a directory
     sleep SECONDS|infinity waits
     wget|curl [-…] URL     GETs http://HOST[:PORT][/PATH], prints the body; fails unless the status is 200
     serve PORT [TEXT]      answers every HTTP request with TEXT, by default the host's name
     spin [SECONDS]         uses a CPU whole, without end unless told
     id                     prints the user and group
     true
     wait                   waits; this is also what it does when called without arguments

   Whatever waits ends at once on SIGTERM and SIGINT with status 0, as process 1 too. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static void leave(int number) {
	(void)number;
	_exit(0);
}

static int failed(const char *what, const char *name) {
	fprintf(stderr, "%s: %s: %s\n", what, name, strerror(errno));
	return 1;
}

static int write_all(int to, const char *data, size_t length) {
	while (length > 0) {
		ssize_t written = write(to, data, length);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return -1;
		data += written;
		length -= (size_t)written;
	}
	return 0;
}

static int copy(int from, int to) {
	char buffer[65536];
	ssize_t length;
	while ((length = read(from, buffer, sizeof buffer)) > 0)
		if (write_all(to, buffer, (size_t)length) != 0)
			return -1;
	return (int)length;
}

static int cat_file(const char *path) {
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return failed("cat", path);
	int status = copy(file, STDOUT_FILENO) == 0 ? 0 : failed("cat", path);
	close(file);
	return status;
}

static int cat(int count, char **names) {
	int status = 0;
	for (int i = 0; i < count; i++)
		status |= cat_file(names[i]);
	return status;
}

static int visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static int ls(const char *path) {
	struct dirent **entries;
	int count = scandir(path, &entries, visible, alphasort);
	if (count < 0)
		return failed("ls", path);
	for (int i = 0; i < count; i++) {
		puts(entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	return 0;
}

static int wait_forever(void) {
	while (pause() != 0)
		;
	return 0;
}

static int nginx(void) {
	static const char directory[] = "/etc/nginx";
	struct dirent **entries;
	int count = scandir(directory, &entries, visible, alphasort);
	if (count < 0)
		return failed("nginx", directory);
	for (int i = 0; i < count; i++) {
		char path[4096];
		struct stat what;
		snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
		if (stat(path, &what) == 0 && S_ISREG(what.st_mode)) {
			printf("# configuration file %s:\n", path);
			fflush(stdout);
			if (cat_file(path) != 0)
				return 1;
		}
	}
	puts("nginx stand-in: waiting");
	fflush(stdout);
	return wait_forever();
}

static int sleep_for(const char *time) {
	if (strcmp(time, "infinity") == 0)
		return wait_forever();
	char *end;
	double seconds = strtod(time, &end);
	if (end == time || *end != '\0' || !(seconds >= 0 && seconds < 1e9)) {
		fprintf(stderr, "sleep: invalid time: %s\n", time);
		return 1;
	}
	struct timespec left = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
	return 0;
}

static int get(const char *url) {
	char host[256], port[6] = "80";
	const char *from = strncmp(url, "http://", 7) == 0 ? url + 7 : url;
	size_t authority = strcspn(from, "/"), name = strcspn(from, ":/");
	const char *path = from[authority] == '/' ? from + authority : "/";
	if (name == 0 || name >= sizeof host || (name < authority && authority - name - 1 >= sizeof port)) {
		fprintf(stderr, "wget: bad address %s\n", url);
		return 1;
	}
	memcpy(host, from, name);
	host[name] = '\0';
	if (name < authority) {
		memcpy(port, from + name + 1, authority - name - 1);
		port[authority - name - 1] = '\0';
	}

	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
	int problem = getaddrinfo(host, port, &hints, &found);
	if (problem != 0) {
		fprintf(stderr, "wget: %s: %s\n", host, gai_strerror(problem));
		return 1;
	}
	int server = -1;
	for (struct addrinfo *address = found; address != NULL && server < 0; address = address->ai_next) {
		struct timeval limit = {.tv_sec = 5};
		server = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (server < 0)
			return failed("wget", host);
		setsockopt(server, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* bounds connect too */
		setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
		if (connect(server, address->ai_addr, address->ai_addrlen) != 0) {
			failed("wget", host);
			close(server);
			server = -1;
		}
	}
	freeaddrinfo(found);
	if (server < 0)
		return 1;
	dprintf(server, "GET %s HTTP/1.0\r\nHost: %s:%s\r\nConnection: close\r\n\r\n", path, host, port);

	/* The head, at most 16 KiB; what follows it is the body. */
	char head[16385];
	size_t length = 0;
	char *body = NULL;
	while (body == NULL && length < sizeof head - 1) {
		ssize_t got = read(server, head + length, sizeof head - 1 - length);
		if (got <= 0)
			break;
		length += (size_t)got;
		head[length] = '\0';
		body = strstr(head, "\r\n\r\n");
	}
	if (body == NULL) {
		fprintf(stderr, "wget: %s gave no HTTP answer\n", url);
		return 1;
	}
	body += 4;
	const char *space = strchr(head, ' ');
	int status = space == NULL ? 0 : atoi(space);
	if (write_all(STDOUT_FILENO, body, length - (size_t)(body - head)) != 0 || copy(server, STDOUT_FILENO) != 0)
		return failed("wget", url);
	if (status != 200)
		fprintf(stderr, "wget: server returned status %d\n", status);
	return status != 200;
}

static int get_last(int count, char **arguments, const char *name) {
	if (count == 0) {
		fprintf(stderr, "usage: %s [-…] URL\n", name);
		return 2;
	}
	return get(arguments[count - 1]);
}

static int serve(const char *port, const char *text) {
	char name[256] = "";
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *address;
	int one = 1;
	if (text == NULL) {
		gethostname(name, sizeof name - 1);
		text = name;
	}
	if (getaddrinfo(NULL, port, &hints, &address) != 0) {
		fprintf(stderr, "serve: bad port %s\n", port);
		return 1;
	}
	int listener = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0)
		return failed("serve", port);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, address->ai_addr, address->ai_addrlen) != 0 || listen(listener, 128) != 0)
		return failed("serve", port);
	freeaddrinfo(address);
	printf("serving on port %s\n", port);
	fflush(stdout);
	for (;;) {
		int client = accept(listener, NULL, NULL);
		if (client < 0)
			continue;
		/* One at a time: a client that says nothing is given a second. */
		struct timeval limit = {.tv_sec = 1};
		char request[4096];
		setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
		setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
		if (read(client, request, sizeof request) > 0)
			dprintf(client, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n%s\n",
			        strlen(text) + 1, text);
		close(client);
	}
}

static int spin(const char *time) {
	struct timespec now, end = {0};
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += time == NULL ? 0 : atol(time);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (time == NULL || now.tv_sec < end.tv_sec);
	return 0;
}

int main(int count, char **arguments) {
	signal(SIGINT, leave);
	signal(SIGTERM, leave);
	signal(SIGPIPE, SIG_IGN);

	const char *slash = strrchr(arguments[0], '/');
	const char *name = slash == NULL ? arguments[0] : slash + 1;
	if (strcmp(name, "standin") == 0) {
		if (count < 2)
			return wait_forever();
		name = arguments[1];
		count--;
		arguments++;
	}
	count--;
	arguments++; /* From here on: the applet's own. */
	const char *first = count > 0 ? arguments[0] : NULL;

	if (strcmp(name, "nginx") == 0)
		return nginx();
	if (strcmp(name, "cat") == 0)
		return cat(count, arguments);
	if (strcmp(name, "ls") == 0)
		return ls(first == NULL ? "." : first);
	if (strcmp(name, "sleep") == 0 && first != NULL)
		return sleep_for(first);
	if (strcmp(name, "wget") == 0 || strcmp(name, "curl") == 0)
		return get_last(count, arguments, name);
	if (strcmp(name, "serve") == 0 && first != NULL)
		return serve(first, count > 1 ? arguments[1] : NULL);
	if (strcmp(name, "spin") == 0)
		return spin(first);
	if (strcmp(name, "id") == 0) {
		printf("uid=%d gid=%d\n", (int)getuid(), (int)getgid());
		return 0;
	}
	if (strcmp(name, "true") == 0)
		return 0;
	if (strcmp(name, "wait") == 0)
		return wait_forever();
	fprintf(stderr, "standin: no such applet, or its argument is missing: %s\n", name);
	return 127;
}
