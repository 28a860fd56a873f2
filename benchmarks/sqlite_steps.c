/* Steps over the rows that a query gives, by SQLite's C interface, and takes every column of each.

       sqlite_steps FILE QUERY...

   Prints, for each query: seconds, rows, and the sum of all whole numbers (so that nothing is left out). */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char** argv) {
    sqlite3* database;
    if (argc < 3 || sqlite3_open_v2(argv[1], &database, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) return 2;
    /* The fastest way that SQLite has: no system call a page. */
    sqlite3_exec(database, "PRAGMA mmap_size = 17179869184", NULL, NULL, NULL);
    for (int q = 2; q < argc; ++q) {
        sqlite3_stmt* statement;
        const double begun = now();
        if (sqlite3_prepare_v2(database, argv[q], -1, &statement, NULL) != SQLITE_OK) {
            fprintf(stderr, "%s\n", sqlite3_errmsg(database));
            return 1;
        }
        const int columns = sqlite3_column_count(statement);
        int64_t rows = 0;
        uint64_t sum = 0;
        while (sqlite3_step(statement) == SQLITE_ROW) {
            ++rows;
            for (int i = 0; i < columns; ++i) {
                switch (sqlite3_column_type(statement, i)) {
                case SQLITE_INTEGER:
                    sum += (uint64_t)sqlite3_column_int64(statement, i);
                    break;
                case SQLITE_TEXT:
                    sum += sqlite3_column_text(statement, i)[0];
                    break;
                default:
                    break;
                }
            }
        }
        if (sqlite3_finalize(statement) != SQLITE_OK) return 1;
        printf("%.6f %" PRId64 " %" PRIu64 "\n", now() - begun, rows, sum);
        fflush(stdout);
    }
    return sqlite3_close(database) == SQLITE_OK ? 0 : 1;
}
