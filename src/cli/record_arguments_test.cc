#include "cli/record_arguments.h"

#include <gmock/gmock.h>

namespace auxtrail::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RecordArguments, Defaults) {
  const auto parsed = parse_record_arguments({"ls", "-l"});
  ASSERT_TRUE(parsed);
  const record::RecordOptions& options = parsed->options;
  EXPECT_EQ(options.event, "");
  EXPECT_FALSE(options.frequency_hz);
  EXPECT_EQ(options.period, 0U);
  EXPECT_EQ(options.output, "perf.data");
  EXPECT_FALSE(options.aux_sample_bytes);
  EXPECT_FALSE(options.snapshot);
  EXPECT_EQ(options.unit, record::UnitChoice::kAuto);
  EXPECT_TRUE(options.inherit);
  EXPECT_THAT(options.command, ElementsAre("ls", "-l"));
  EXPECT_THAT(options.recorder_command_line, ElementsAre("auxtrail", "record", "ls", "-l"));
}

TEST(RecordArguments, AllOptionsInPerfsSpellings) {
  for (const Arguments& arguments :
       {Arguments{"-e", "page-faults", "-F", "5000", "-o", "x.data", "--aux-sample=8K", "-m",
                  "64K,32K", "-i", "-q", "--trace=soft", "--", "cmd"},
        Arguments{"--event=page-faults", "--freq=5K", "--output=x.data", "--aux-sample=8192",
                  "--mmap-pages=16,8", "--no-inherit", "--quiet", "--trace", "soft", "cmd"},
        Arguments{"-epage-faults", "-F5000", "-ox.data", "--aux-sample=8192", "-m16,8", "-iq",
                  "--trace=soft", "cmd"}}) {
    const auto parsed = parse_record_arguments(arguments);
    ASSERT_TRUE(parsed) << parsed.error().message();
    const record::RecordOptions& options = parsed->options;
    EXPECT_EQ(options.event, "page-faults");
    EXPECT_TRUE(options.frequency_hz == 5000 || options.frequency_hz == 5120);
    EXPECT_EQ(options.output, "x.data");
    EXPECT_EQ(options.aux_sample_bytes, 8192U);
    EXPECT_EQ(options.data_pages, 16U);
    EXPECT_EQ(options.aux_pages, 8U);
    EXPECT_FALSE(options.inherit);
    EXPECT_TRUE(options.quiet);
    EXPECT_EQ(options.trace, record::TraceChoice::kSoftware);
    EXPECT_THAT(options.command, ElementsAre("cmd"));
  }
}

TEST(RecordArguments, TheLastOfSeveralCounts) {
  const auto parsed = parse_record_arguments({"-F", "100", "-o", "a", "-F", "200", "-o", "b", "x"});
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->options.frequency_hz, 200U);
  EXPECT_EQ(parsed->options.output, "b");
}

TEST(RecordArguments, WhatExcludesEachOtherIsRefused) {
  const auto message = [](const Arguments& arguments) {
    const auto parsed = parse_record_arguments(arguments);
    return parsed ? std::string() : parsed.error().message();
  };
  EXPECT_THAT(message({"-F", "100", "-c", "1000", "x"}), HasSubstr("exclude each other"));
  EXPECT_THAT(message({"-o", "-", "x"}), HasSubstr("pipe"));
}

TEST(RecordArguments, EventsAddUpAndFiltersKnowTheirPlace) {
  const auto parsed = parse_record_arguments({"-e", "intel_pt//u", "--filter", "filter main @x",
                                              "-e{faults,cs}", "--filter=pid == 1", "cmd"});
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->options.event, "intel_pt//u,{faults,cs}");
  ASSERT_EQ(parsed->options.filters.size(), 2U);
  EXPECT_EQ(parsed->options.filters[0].text, "filter main @x");
  EXPECT_EQ(parsed->options.filters[0].event_bytes, 11U);
  EXPECT_EQ(parsed->options.filters[1].text, "pid == 1");
  EXPECT_EQ(parsed->options.filters[1].event_bytes, 23U);
}

TEST(RecordArguments, Snapshots) {
  struct Spelling {
    Arguments words;
    uint64_t bytes;
    bool on_exit;
  };
  for (const Spelling& spelling :
       {Spelling{{"-S"}, 0, false}, Spelling{{"--snapshot"}, 0, false}, Spelling{{"-Se"}, 0, true},
        Spelling{{"-S64K"}, 65536, false}, Spelling{{"-Se4096"}, 4096, true},
        Spelling{{"--snapshot=e1M"}, 1 << 20, true}}) {
    Arguments words = spelling.words;
    words.push_back("cmd");
    const auto parsed = parse_record_arguments(words);
    ASSERT_TRUE(parsed) << words[0] << parsed.error().message();
    ASSERT_TRUE(parsed->options.snapshot) << words[0];
    EXPECT_EQ(parsed->options.snapshot->bytes, spelling.bytes) << words[0];
    EXPECT_EQ(parsed->options.snapshot->on_exit, spelling.on_exit) << words[0];
    EXPECT_THAT(parsed->options.command, ElementsAre("cmd"));
  }
  EXPECT_FALSE(parse_record_arguments({"-Sx", "cmd"}));
}

TEST(RecordArguments, Units) {
  EXPECT_EQ(parse_record_arguments({"--unit=window", "x"})->options.unit,
            record::UnitChoice::kWindow);
  EXPECT_EQ(parse_record_arguments({"--unit", "continuous", "x"})->options.unit,
            record::UnitChoice::kContinuous);
  EXPECT_FALSE(parse_record_arguments({"--unit=both", "x"}));
}

TEST(RecordArguments, TheCommandsOptionsAreItsOwn) {
  const auto parsed =
      parse_record_arguments({"-q", "auxtrail", "record", "-F", "max", "--aux-sample", "--", "x"});
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(parsed->options.quiet);
  EXPECT_FALSE(parsed->options.frequency_max);
  EXPECT_THAT(parsed->options.command,
              ElementsAre("auxtrail", "record", "-F", "max", "--aux-sample", "--", "x"));
  EXPECT_THAT(parse_record_arguments({"--", "-odd-name"})->options.command,
              ElementsAre("-odd-name"));
}

// As in perf, --aux-sample takes its size with '=' only.
TEST(RecordArguments, BareAuxSampleDoesNotEatTheCommand) {
  const auto parsed = parse_record_arguments({"--aux-sample", "ls"});
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->options.aux_sample_bytes, 0U);  // the default
  EXPECT_THAT(parsed->options.command, ElementsAre("ls"));
}

TEST(RecordArguments, RatesAndPages) {
  EXPECT_TRUE(parse_record_arguments({"-F", "max", "x"})->options.frequency_max);
  EXPECT_EQ(parse_record_arguments({"-c", "1M", "x"})->options.period, 1U << 20);
  EXPECT_EQ(parse_record_arguments({"-m", ",4", "x"})->options.aux_pages, 4U);
  EXPECT_EQ(parse_record_arguments({"-m", ",4", "x"})->options.data_pages, 128U);
  EXPECT_FALSE(parse_record_arguments({"-m", "4", "x"})->options.aux_pages);
}

TEST(RecordArguments, Errors) {
  for (const Arguments& arguments :
       {Arguments{}, Arguments{"--"}, Arguments{"-q"}, Arguments{"--no-such", "ls"},
        Arguments{"-F", "abc", "ls"}, Arguments{"-c", "0", "ls"}, Arguments{"-m", "0", "ls"},
        Arguments{"-m", "4,", "ls"}, Arguments{"--trace=hard", "ls"}, Arguments{"-o"},
        Arguments{"--aux-sample=", "ls"}, Arguments{"--aux-sample=4Q", "ls"}}) {
    EXPECT_FALSE(parse_record_arguments(arguments)) << (arguments.empty() ? "" : arguments[0]);
  }
}

TEST(RecordArguments, Help) {
  const auto parsed = parse_record_arguments({"--help"});
  ASSERT_TRUE(parsed);
  ASSERT_TRUE(parsed->help);
  for (const char* option :
       {"-e,--event", "-F,--freq", "-c,--count", "-o,--output", "--aux-sample", "-m,--mmap-pages",
        "-i,--no-inherit", "--trace", "--unit", "--filter", "--snapshot"}) {
    EXPECT_THAT(*parsed->help, HasSubstr(option));
  }
}

TEST(RecordArguments, WhatPerfHasAndAuxtrailHasNotIsExplained) {
  for (const auto& [option, text] : {std::pair{"-p", "does not attach"},
                                     {"-a", "whole system"},
                                     {"--call-graph=dwarf", "history"}}) {
    const auto parsed = parse_record_arguments({option, "true"});
    ASSERT_FALSE(parsed) << option;
    EXPECT_THAT(parsed.error().message(), HasSubstr(text));
  }
}

TEST(RecordArguments, ASizeThatStandsApartIsNoCommand) {
  const auto parsed = parse_record_arguments({"--aux-sample", "8192", "--", "true"});
  ASSERT_FALSE(parsed);
  EXPECT_THAT(parsed.error().message(), HasSubstr("--aux-sample=8192"));
  EXPECT_TRUE(parse_record_arguments({"--aux-sample", "--", "true"}));
  EXPECT_TRUE(parse_record_arguments({"--aux-sample", "true"}));
}

}  // namespace
}  // namespace auxtrail::cli
