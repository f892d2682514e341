/* The process that keeps a pod's namespaces: it waits, buries the children that others leave to it, and ends on
   request. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void bury(int number) {
	(void)number;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void leave(int number) {
	(void)number;
	_exit(0);
}

int main(void) {
	signal(SIGCHLD, bury);
	signal(SIGINT, leave);
	signal(SIGTERM, leave);
	for (;;)
		pause();
}
