#include <gradweave/transport/rendezvous.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;
using boost::asio::ip::make_address;

TEST_CASE("listen_at: at any free port, of all addresses or of one") {
  boost::asio::io_context context;
  const auto everywhere = listen_at(context, 0);
  CHECK(everywhere.local_endpoint().port() != 0);
  const auto here = listen_at(context, 0, make_address("127.0.0.1"));
  CHECK(here.local_endpoint().address() == make_address("127.0.0.1"));
}

TEST_CASE("find_host: says what is wrong with a name") {
  boost::asio::io_context context;
  std::string fault;
  CHECK(find_host(context, {.address = "no.such.host.invalid"}, fault).empty());
  CHECK(fault.find("the name 'no.such.host.invalid' is not known") != std::string::npos);
  CHECK(find_host(context, {.address = "127.0.0.1", .port = 7}, fault).front() ==
        tcp_endpoint(make_address("127.0.0.1"), 7));
}

TEST_CASE("find_host: says what is wrong with a file, and gives loopback addresses to this host alone") {
  boost::asio::io_context context;
  const std::string file =
      (std::filesystem::temp_directory_path() / ("gradweave_find_" + std::to_string(::getpid()))).string();
  std::string fault;
  CHECK(find_host(context, {.file = file}, fault).empty());
  CHECK(fault == "rank 0 has not written that file");
  const tcp_endpoint loopback(make_address("127.0.0.1"), 7);
  {
    const meeting_file held(file, {"mine", host_identity(), {loopback}});
    CHECK(find_host(context, {.file = file, .job = "yours"}, fault).empty());
    CHECK(fault == "the file belongs to another job, 'mine'");
    CHECK(find_host(context, {.file = file, .job = "mine"}, fault) == std::vector{loopback});
  }
  {
    const meeting_file held(file, {"mine", "another host", {loopback}});
    CHECK(find_host(context, {.file = file, .job = "mine"}, fault).empty());
    CHECK(fault == "rank 0 has no address that another host could reach");
  }
  CHECK_FALSE(std::filesystem::exists(file));
}
