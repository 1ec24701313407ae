#include <gradweave/backend/groups.hpp>

#include <vector>

#include <doctest/doctest.h>

using namespace gradweave::backend;

TEST_CASE("group_members: those of one colour, by key, and by rank where keys are equal") {
  const std::vector<group_place> places = {{5, 2}, {1, 0}, {5, -1}, {5, 2}, {1, -7}};
  CHECK(group_members(places, 0) == std::vector<int>{2, 0, 3});
  CHECK(group_members(places, 2) == std::vector<int>{2, 0, 3});
  CHECK(group_members(places, 1) == std::vector<int>{4, 1});
}

TEST_CASE("ranks_in_words: one, several, and more than anybody reads") {
  CHECK(ranks_in_words(std::vector<int>{4}) == "rank 4");
  CHECK(ranks_in_words(std::vector<int>{4, 2}) == "ranks 4 and 2");
  CHECK(ranks_in_words(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}) == "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
  CHECK(ranks_in_words(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}
