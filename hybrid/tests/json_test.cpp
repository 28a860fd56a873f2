// What a script reads must be JSON whatever is put in; what a user types wrong must be told.
#include "nas/json.h"

#include <cmath>
#include <stdexcept>

#include "nas/options.h"
#include "tests/check.h"

namespace {

template <class Body>
std::string complaint(Body body) {
    try {
        body();
    } catch (const std::invalid_argument& problem) {
        return problem.what();
    }
    return {};
}

}  // namespace

int main() {
    nas::Json inner, outer;
    inner.set("text", "a \"b\"\\\n").set("truth", true).set("whole", 3);
    outer.set("inner", inner)
        .set("list", std::vector<double>{1.5, NAN})
        .set("objects", std::vector<nas::Json>{inner});
    CHECK(inner.text() == "{\"text\": \"a \\\"b\\\"\\\\ \", \"truth\": true, \"whole\": 3}");
    CHECK(outer.text().find("\"list\": [1.5, null]") != std::string::npos);

    const std::vector<nas::Options::Known> known = {{"count", "1", "how many"}, {"loud", "no", "say more"}};
    const char* good[] = {"program", "--count", "12", "--loud"};
    const nas::Options options(4, const_cast<char**>(good), known);
    CHECK(options.integer("count") == 12);
    CHECK(options.flag("loud"));
    const char* unknown[] = {"program", "--cuont", "12"};
    CHECK(complaint([&] { nas::Options(3, const_cast<char**>(unknown), known); }).find("--count") !=
          std::string::npos);
    const char* bad[] = {"program", "--count", "12x"};
    CHECK(!complaint([&] { nas::Options(3, const_cast<char**>(bad), known).integer("count"); }).empty());
    const char* bare[] = {"program", "--count"};
    CHECK(!complaint([&] { nas::Options(2, const_cast<char**>(bare), known); }).empty());
    return check::failures;
}
