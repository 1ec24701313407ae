#include <gradweave/transport/meeting_file.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <doctest/doctest.h>

using namespace gradweave::detail;
using boost::asio::ip::make_address;

namespace {

std::string scratch_file() {
  return (std::filesystem::temp_directory_path() / ("gradweave_meeting_" + std::to_string(::getpid()))).string();
}

}  // namespace

TEST_CASE("meeting place: survives the way, and every cut of it is refused") {
  const meeting_place place{"a job", "host/7", {{make_address("10.0.0.1"), 1234}, {make_address("fd00::1"), 1234}}};
  const std::string text = to_text(place);
  CHECK(parse_meeting_place(text) == place);
  for (std::size_t length = 0; length + 1 < text.size(); ++length) {
    CHECK_FALSE(parse_meeting_place(text.substr(0, length)));
  }
  CHECK_FALSE(parse_meeting_place("gradweave-meeting 1\nat 10.0.0.1 70000\nend\n"));
  CHECK_FALSE(parse_meeting_place("gradweave-meeting 1\nat nowhere 7\nend\n"));
  CHECK_FALSE(parse_meeting_place("something else\nend\n"));
}

TEST_CASE("meeting_file: replaces what a former job left, and goes with its owner, but not a later job's") {
  const std::string file = scratch_file();
  std::ofstream(file) << "left over";
  CHECK_FALSE(read_meeting_place(file));
  {
    const meeting_file own(file, {"mine", "here", {}});
    CHECK(read_meeting_place(file)->job == "mine");
    const meeting_file later(file, {"yours", "here", {}});
    CHECK(read_meeting_place(file)->job == "yours");
  }
  CHECK_FALSE(std::filesystem::exists(file));
  {
    const meeting_file own(file, {"mine", "here", {}});
    std::ofstream(file) << to_text(meeting_place{"yours", "here", {}});
  }
  CHECK(read_meeting_place(file)->job == "yours");
  std::filesystem::remove(file);
}

TEST_CASE("meeting_file: says where it can't be written") {
  CHECK_THROWS_AS(meeting_file("/no/such/folder/file", {}), std::system_error);
}

TEST_CASE("this_place: lists loopback addresses last") {
  const auto place = this_place("job", "", 99);
  REQUIRE_FALSE(place.endpoints.empty());
  CHECK(place.endpoints.back().address().is_loopback());
  CHECK(place.endpoints.back().port() == 99);
  CHECK(place.host == host_identity());
}
