# Written by tools/generate_cmake from the BUILD files; CI compares.

brigade_library(
  monitor_dashboard_loopback_server
  HEADERS monitor/dashboard/http_request.h monitor/dashboard/loopback_server.h
  SOURCES monitor/dashboard/http_request.cc monitor/dashboard/loopback_server.cc
  DEPS device_threads_deadline device_threads_start_thread
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings absl::time
)

brigade_library(
  monitor_dashboard_page
  HEADERS monitor/dashboard/page.h
  SOURCES monitor/dashboard/page.cc monitor/dashboard/page_charts.cc
    monitor/dashboard/page_script.cc monitor/dashboard/page_style.cc
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  monitor_dashboard_series
  HEADERS monitor/dashboard/series.h
  SOURCES monitor/dashboard/series.cc
  PRIVATE_LIBRARIES absl::str_format absl::strings
)

brigade_library(
  monitor_record
  HEADERS monitor/record.h
  DEPS device_requirements
)

brigade_library(
  monitor_back_end
  HEADERS monitor/back_end.h
  DEPS monitor_record
  PUBLIC_LIBRARIES absl::status
)

brigade_library(
  monitor_task_queue
  HEADERS monitor/task_queue.h
  SOURCES monitor/task_queue.cc
  DEPS device_requirements device_threads_deadline device_threads_mutex device_threads_start_thread
  PUBLIC_LIBRARIES absl::time
  PRIVATE_LIBRARIES absl::core_headers
)

brigade_library(
  monitor_lib
  HEADERS monitor/monitor.h
  SOURCES monitor/monitor.cc
  DEPS monitor_back_end monitor_record monitor_task_queue device_threads_deadline
    device_threads_mutex
  PUBLIC_LIBRARIES absl::status absl::time
  PRIVATE_LIBRARIES absl::core_headers absl::strings
)

brigade_library(
  monitor_dashboard
  HEADERS monitor/dashboard/dashboard.h
  SOURCES monitor/dashboard/dashboard.cc
  DEPS monitor_dashboard_loopback_server monitor_dashboard_page monitor_dashboard_series
    device_status_macros device_threads_mutex monitor_back_end monitor_lib monitor_record
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::str_format absl::strings nlohmann_json::nlohmann_json
)

brigade_library(
  monitor_csv_files
  HEADERS monitor/csv_files.h
  SOURCES monitor/csv_files.cc
  DEPS monitor_back_end monitor_record device_append_file device_printable device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor absl::strings
)

brigade_library(
  monitor_event_record
  HEADERS monitor/event_record.h
  SOURCES monitor/event_record.cc
  DEPS monitor_record device_file_crc32c
  PUBLIC_LIBRARIES absl::strings
)

brigade_library(
  monitor_event_file
  HEADERS monitor/event_file.h
  SOURCES monitor/event_file.cc
  DEPS monitor_back_end monitor_event_record monitor_lib monitor_record device_append_file
    device_printable device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES absl::str_format absl::strings
)

brigade_library(
  monitor_json_lines
  HEADERS monitor/json_lines.h
  SOURCES monitor/json_lines.cc
  DEPS monitor_back_end monitor_record device_append_file device_printable device_status_macros
  PUBLIC_LIBRARIES absl::status absl::statusor
  PRIVATE_LIBRARIES nlohmann_json::nlohmann_json
)

brigade_library(
  monitor
  DEPS monitor_back_end monitor_csv_files monitor_event_file monitor_event_record monitor_json_lines
    monitor_lib monitor_record monitor_task_queue monitor_dashboard
)
