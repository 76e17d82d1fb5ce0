import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import java.io.FileReader;
import java.lang.management.ManagementFactory;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/** Debezium's engine without a sink: counts records of tables, and says what so many of them took. */
public class DebeziumCount {
    static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    public static void main(String[] given) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(given[0])) {
            properties.load(reader);
        }
        long wanted = Long.parseLong(given[1]);
        CountDownLatch done = new CountDownLatch(1);
        AtomicLong count = new AtomicLong();
        long[] first = new long[2];
        long[] last = new long[2];
        DebeziumEngine<?> engine = DebeziumEngine.create(Connect.class)
            .using(properties)
            .using((success, message, error) -> {
                if (!success) {
                    System.out.println("FAILED " + message + " " + error);
                }
                done.countDown();
            })
            .notifying(event -> {
                if (event.value() == null || event.value().topic().indexOf('.') < 0) {
                    return;
                }
                long number = count.incrementAndGet();
                if (number == 1) {
                    first[0] = System.nanoTime();
                    first[1] = cpu();
                    System.out.println("FIRST");
                }
                if (number == wanted) {
                    last[0] = System.nanoTime();
                    last[1] = cpu();
                    done.countDown();
                }
            })
            .build();
        Thread runner = new Thread(engine, "engine");
        runner.start();
        System.out.println("BEGUN");
        done.await();
        engine.close();
        runner.join();
        System.out.println("TOOK " + count.get() + " " + (last[0] - first[0]) / 1e9 + " " + (last[1] - first[1]) / 1e9);
    }
}
