import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Array;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.Date;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TimeZone;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;
import org.postgresql.PGStatement;
import org.postgresql.copy.CopyIn;
import org.postgresql.copy.CopyManager;
import org.postgresql.copy.CopyOut;
import org.postgresql.largeobject.LargeObject;
import org.postgresql.largeobject.LargeObjectManager;
import org.postgresql.util.PGInterval;
import org.postgresql.util.PGobject;

// pgjdbc: what JDBC and the driver's manual offer, for a table with a shard key and for whole ones.
public class Jdbc {
  interface Test {
    void run(Connection c) throws Exception;
  }

  static String key = "";

  static Connection connect(String... properties) throws SQLException {
    Properties p = new Properties();
    p.setProperty("user", System.getenv("PGUSER"));
    for (int i = 0; i < properties.length; i += 2) p.setProperty(properties[i], properties[i + 1]);
    return DriverManager.getConnection("jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE"), p);
  }

  static void want(Object got, Object expected) {
    if (!String.valueOf(got).equals(String.valueOf(expected))) throw new AssertionError(got + " is not " + expected);
  }

  static void exec(Connection c, String... statements) throws SQLException {
    try (Statement s = c.createStatement()) {
      for (String sql : statements) s.execute(sql);
    }
  }

  /** The first columns of all rows, each with the others after a blank. */
  static List<String> rows(Connection c, String sql, Object... parameters) throws SQLException {
    try (PreparedStatement s = c.prepareStatement(sql)) {
      for (int i = 0; i < parameters.length; i++) s.setObject(i + 1, parameters[i]);
      try (ResultSet r = s.executeQuery()) {
        return read(r);
      }
    }
  }

  static List<String> read(ResultSet r) throws SQLException {
    List<String> all = new ArrayList<>();
    int n = r.getMetaData().getColumnCount();
    while (r.next()) {
      StringBuilder b = new StringBuilder();
      for (int i = 1; i <= n; i++) b.append(i > 1 ? " " : "").append(r.getString(i));
      all.add(b.toString());
    }
    return all;
  }

  static String state(Connection c, String sql) {
    try {
      exec(c, sql);
      return "00000";
    } catch (SQLException e) {
      return e.getSQLState();
    }
  }

  static void fill(Connection c, int n) throws SQLException {
    exec(c, "DROP TABLE IF EXISTS p", "CREATE TABLE p (k bigint, id bigint, note text, price numeric(10,2), PRIMARY KEY (k, id))" + key);
    try (PreparedStatement s = c.prepareStatement("INSERT INTO p (k, id, note, price) VALUES (?, ?, ?, ?)")) {
      for (int i = 0; i < n; i++) {
        s.setLong(1, i % 10);
        s.setLong(2, i);
        s.setString(3, "n" + i);
        s.setBigDecimal(4, BigDecimal.valueOf(i * 25, 2));
        s.addBatch();
      }
      int[] got = s.executeBatch();
      want(got.length, n);
      for (int one : got) want(one, 1);
    }
  }

  static void types(Connection c) throws SQLException {
    UUID u = UUID.randomUUID();
    LocalDate d = LocalDate.of(2026, 2, 3);
    LocalDateTime at = LocalDateTime.of(2026, 2, 3, 4, 5, 6, 789000000);
    OffsetDateTime tz = at.atOffset(ZoneOffset.ofHours(2));
    Array a = c.createArrayOf("text", new String[] {"x", null, "y,\"z"});
    PGobject j = new PGobject();
    j.setType("jsonb");
    j.setValue("{\"a\": 1}");
    PGInterval span = new PGInterval(0, 1, 2, 3, 4, 5.5);
    for (int i = 0; i < 7; i++) {
      try (PreparedStatement s = c.prepareStatement("SELECT ?::uuid, ?::date, ?::timestamp, ?::timestamptz, ?::text[], ?::jsonb, ?::interval, ?::bytea, ?::float8, ?::bool, ?::numeric, ?::int2")) {
        s.setObject(1, u);
        s.setObject(2, d);
        s.setObject(3, at);
        s.setObject(4, tz);
        s.setArray(5, a);
        s.setObject(6, j);
        s.setObject(7, span);
        s.setBytes(8, new byte[] {0, -1, 5});
        s.setDouble(9, 1.5e300);
        s.setBoolean(10, true);
        s.setBigDecimal(11, new BigDecimal("-12345678901234567890.5"));
        s.setNull(12, Types.SMALLINT);
        try (ResultSet r = s.executeQuery()) {
          r.next();
          want(r.getObject(1), u);
          want(r.getObject(2, LocalDate.class), d);
          want(r.getObject(3, LocalDateTime.class), at);
          want(r.getObject(4, OffsetDateTime.class).toInstant(), tz.toInstant());
          want(Arrays.toString((Object[]) r.getArray(5).getArray()), "[x, null, y,\"z]");
          want(r.getString(6), "{\"a\": 1}");
          want(r.getObject(7), span);
          want(Arrays.toString(r.getBytes(8)), "[0, -1, 5]");
          want(r.getDouble(9), 1.5e300);
          want(r.getBoolean(10), true);
          want(r.getBigDecimal(11), "-12345678901234567890.5");
          want(r.getShort(12) + " " + r.wasNull(), "0 true");
        }
      }
    }
  }

  static void serverPrepared(Connection c) throws SQLException {
    try (PreparedStatement s = c.prepareStatement("SELECT note, price FROM p WHERE k = ? AND id = ?")) {
      s.unwrap(PGStatement.class).setPrepareThreshold(3);
      for (int i = 0; i < 30; i++) {
        s.setLong(1, i % 10);
        s.setLong(2, i);
        try (ResultSet r = s.executeQuery()) {
          want(read(r), "[n" + i + " " + BigDecimal.valueOf(i * 25, 2) + "]");
        }
      }
      want(s.unwrap(PGStatement.class).isUseServerPrepare(), true);
      exec(c, "ALTER TABLE p ADD COLUMN extra int DEFAULT 4");
      s.setLong(1, 1);
      s.setLong(2, 1);
      want(read(s.executeQuery()), "[n1 0.25]");
    }
    try (PreparedStatement s = c.prepareStatement("SELECT * FROM p WHERE k = 1 AND id = 1")) {
      for (int i = 0; i < 8; i++) want(read(s.executeQuery()), "[1 1 n1 0.25 4]");
      exec(c, "ALTER TABLE p DROP COLUMN extra");
      want(read(s.executeQuery()), "[1 1 n1 0.25]");
    }
  }

  static void generated(Connection c) throws SQLException {
    exec(c, "DROP TABLE IF EXISTS g", "CREATE TABLE g (id serial PRIMARY KEY, v text, at timestamptz DEFAULT now())");
    try (PreparedStatement s = c.prepareStatement("INSERT INTO g (v) VALUES (?)", Statement.RETURN_GENERATED_KEYS)) {
      s.setString(1, "a");
      s.executeUpdate();
      try (ResultSet r = s.getGeneratedKeys()) {
        r.next();
        want(r.getInt("id"), 1);
      }
      for (String v : new String[] {"b", "c", "d"}) {
        s.setString(1, v);
        s.addBatch();
      }
      s.executeBatch();
      try (ResultSet r = s.getGeneratedKeys()) {
        want(rowsOf(r, "id"), "[2, 3, 4]");
      }
    }
    try (PreparedStatement s = c.prepareStatement("INSERT INTO g (v) VALUES ('x'), ('y')", new String[] {"id", "v"})) {
      s.executeUpdate();
      want(read(s.getGeneratedKeys()), "[5 x, 6 y]");
    }
    try (Statement s = c.createStatement()) {
      want(s.executeUpdate("UPDATE g SET v = 'z' WHERE id > 3", new String[] {"id"}), 3);
      want(rowsOf(s.getGeneratedKeys(), "id"), "[4, 5, 6]");
    }
  }

  static List<String> rowsOf(ResultSet r, String column) throws SQLException {
    List<String> all = new ArrayList<>();
    while (r.next()) all.add(r.getString(column));
    return all;
  }

  static void batches(Connection c) throws SQLException {
    try (Statement s = c.createStatement()) {
      s.addBatch("INSERT INTO p VALUES (3, 9001, 'b', 1)");
      s.addBatch("UPDATE p SET note = 'c' WHERE k = 3 AND id >= 9000");
      s.addBatch("DELETE FROM p WHERE k = 3 AND id = 9001");
      want(Arrays.toString(s.executeBatch()), "[1, 1, 1]");
    }
    c.setAutoCommit(false);
    try (PreparedStatement s = c.prepareStatement("INSERT INTO p VALUES (?, ?, 'x', 0)")) {
      for (int i = 0; i < 2000; i++) {
        s.setLong(1, i % 7);
        s.setLong(2, i == 1500 ? 10493 : 9000 + i);
        s.addBatch();
      }
      try {
        s.executeBatch();
        throw new AssertionError("no error");
      } catch (BatchUpdateException e) {
        want(e.getSQLState(), "23505");
      }
    }
    c.rollback();
    want(rows(c, "SELECT count(*) FROM p WHERE id >= 9000"), "[0]");
    c.rollback();
  }

  static void rewrittenBatches(Connection c) throws SQLException {
    try (Connection w = connect("reWriteBatchedInserts", "true"); PreparedStatement s = w.prepareStatement("INSERT INTO p (k, id, note) VALUES (?, ?, ?)")) {
      for (int i = 0; i < 500; i++) {
        s.setLong(1, i % 10);
        s.setLong(2, 20000 + i);
        s.setString(3, "w");
        s.addBatch();
      }
      s.executeBatch();
      want(rows(w, "SELECT count(*), min(id), max(id) FROM p WHERE note = 'w'"), "[500 20000 20499]");
      exec(w, "DELETE FROM p WHERE note = 'w'");
    }
  }

  static void copies(Connection c) throws Exception {
    CopyManager m = c.unwrap(PGConnection.class).getCopyAPI();
    StringBuilder b = new StringBuilder();
    for (int i = 0; i < 5000; i++) b.append(i % 10).append(',').append(30000 + i).append(",\"c,\"\n");
    want(m.copyIn("COPY p (k, id, note) FROM STDIN (FORMAT csv)", new StringReader(b.toString())), 5000);
    StringWriter w = new StringWriter();
    want(m.copyOut("COPY (SELECT id, note FROM p WHERE id >= 30000 ORDER BY id LIMIT 2) TO STDOUT (FORMAT csv, HEADER)", w), 2);
    want(w, "id,note\n30000,\"c,\"\n30001,\"c,\"\n");
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    want(m.copyOut("COPY p TO STDOUT BINARY", all), Long.parseLong(rows(c, "SELECT count(*) FROM p").get(0)));
    CopyIn in = m.copyIn("COPY p (k, id) FROM STDIN");
    in.writeToCopy("1\t50000\n".getBytes(StandardCharsets.UTF_8), 0, 8);
    in.cancelCopy();
    try {
      m.copyIn("COPY p (k, id) FROM STDIN", new StringReader("1\tx\n".repeat(10)));
      throw new AssertionError("no error");
    } catch (SQLException e) {
      want(e.getSQLState(), "22P02");
    }
    try (Connection o = connect()) {
      CopyOut out = o.unwrap(PGConnection.class).getCopyAPI().copyOut("COPY (SELECT * FROM p, generate_series(1, 100)) TO STDOUT");
      out.readFromCopy();
      out.cancelCopy();
    }
    want(rows(c, "SELECT count(*) FROM p WHERE id >= 30000"), "[5000]");
    exec(c, "DELETE FROM p WHERE id >= 30000");
    m.copyIn("COPY p FROM STDIN BINARY", new ByteArrayInputStream(binary(c, m)));
  }

  static byte[] binary(Connection c, CopyManager m) throws Exception {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    m.copyOut("COPY (SELECT k, id + 40000, note, price FROM p WHERE id < 5) TO STDOUT (FORMAT binary)", all);
    return all.toByteArray();
  }

  static void cursors(Connection c) throws SQLException {
    c.setAutoCommit(false);
    try (Statement s = c.createStatement()) {
      s.setFetchSize(7);
      int n = 0;
      try (ResultSet r = s.executeQuery("SELECT id FROM p WHERE id < 40000 ORDER BY id")) {
        while (r.next()) want(r.getLong(1), n++);
      }
      want(n, 200);
      s.setMaxRows(5);
      want(read(s.executeQuery("SELECT id FROM p ORDER BY id")), "[0, 1, 2, 3, 4]");
    }
    try (Statement s = c.createStatement(); Statement o = c.createStatement()) {
      s.setFetchSize(10);
      try (ResultSet r = s.executeQuery("SELECT k, id FROM p WHERE id < 50 ORDER BY id")) {
        while (r.next()) want(o.executeUpdate("UPDATE p SET note = 'u' WHERE k = " + r.getLong(1) + " AND id = " + r.getLong(2)), 1);
      }
    }
    c.rollback();
  }

  static void scrolls(Connection c) throws SQLException {
    try (Statement s = c.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE)) {
      try (ResultSet r = s.executeQuery("SELECT k, id, note FROM p WHERE k = 2 AND id < 100 ORDER BY id")) {
        want(r.last() ? r.getRow() : 0, 10);
        r.absolute(3);
        r.updateString("note", "changed");
        r.updateRow();
        r.moveToInsertRow();
        r.updateLong("k", 2);
        r.updateLong("id", 60000);
        r.updateString("note", "new");
        r.insertRow();
        r.beforeFirst();
        r.next();
        r.refreshRow();
        want(r.getString("note"), "n2");
      }
    }
    want(rows(c, "SELECT note FROM p WHERE k = 2 AND id IN (22, 60000) ORDER BY id"), "[changed, new]");
    exec(c, "DELETE FROM p WHERE k = 2 AND id = 60000");
  }

  static void listens(Connection c) throws SQLException {
    exec(c, "LISTEN ch");
    try (Connection other = connect()) {
      exec(other, "NOTIFY ch, 'hello'", "SELECT pg_notify('ch', 'again')");
    }
    List<String> got = new ArrayList<>();
    for (int i = 0; i < 100 && got.size() < 2; i++) {
      PGNotification[] n = c.unwrap(PGConnection.class).getNotifications(500);
      if (n != null) for (PGNotification one : n) got.add(one.getName() + " " + one.getParameter());
    }
    want(got, "[ch hello, ch again]");
    exec(c, "UNLISTEN *");
  }

  static void savepoints(Connection c) throws SQLException {
    c.setAutoCommit(false);
    Savepoint a = c.setSavepoint("a b");
    exec(c, "INSERT INTO p VALUES (1, 70000, 's', 1)");
    Savepoint b = c.setSavepoint();
    want(state(c, "INSERT INTO p VALUES (1, 70000, 's', 1)"), "23505");
    want(state(c, "SELECT 1"), "25P02");
    c.rollback(b);
    c.releaseSavepoint(a);
    c.commit();
    want(rows(c, "SELECT note FROM p WHERE k = 1 AND id = 70000"), "[s]");
    exec(c, "DELETE FROM p WHERE k = 1 AND id = 70000");
    c.commit();
  }

  static void autosaves(Connection c) throws SQLException {
    try (Connection s = connect("autosave", "always", "cleanupSavepoints", "true", "prepareThreshold", "2")) {
      s.setAutoCommit(false);
      for (int i = 0; i < 6; i++) {
        want(rows(s, "SELECT count(*) FROM p WHERE k = ?", 11L), "[" + i + "]");
        exec(s, "INSERT INTO p VALUES (11, " + i + ", 'auto', 1)");
        want(state(s, "INSERT INTO p VALUES (11, " + i + ", 'auto', 1)"), "23505");
        want(state(s, "SELECT nothing"), "42703");
      }
      s.commit();
      want(rows(s, "DELETE FROM p WHERE k = 11 RETURNING id").size(), 6);
      s.commit();
    }
    try (Connection s = connect("autosave", "conservative")) {
      s.setAutoCommit(false);
      PreparedStatement q = s.prepareStatement("SELECT * FROM p WHERE k = 1 AND id = 1");
      for (int i = 0; i < 7; i++) q.executeQuery().close();
      try (Connection o = connect()) {
        s.commit();
        exec(o, "ALTER TABLE p ADD COLUMN x int");
      }
      want(read(q.executeQuery()), "[1 1 n1 0.25 null]");
      s.commit();
      exec(s, "ALTER TABLE p DROP COLUMN x");
      s.commit();
    }
  }

  static void modes(Connection c) throws SQLException {
    for (String mode : new String[] {"simple", "extended", "extendedForPrepared", "extendedCacheEverything"}) {
      try (Connection m = connect("preferQueryMode", mode)) {
        for (int i = 0; i < 6; i++) want(rows(m, "SELECT note FROM p WHERE k = ? AND id = ?", 4L, 4L), "[n4]");
        exec(m, "UPDATE p SET price = price + 1 WHERE k = 4 AND id = 4; UPDATE p SET price = price - 1 WHERE k = 4 AND id = 4");
      }
    }
    for (String prepare : new String[] {"0", "-1", "1"}) {
      try (Connection m = connect("prepareThreshold", prepare, "binaryTransfer", prepare.equals("-1") ? "true" : "false")) {
        for (int i = 0; i < 6; i++) want(rows(m, "SELECT k, id, price FROM p WHERE id BETWEEN ? AND ? ORDER BY id", 4L, 5L), "[4 4 1.00, 5 5 1.25]");
      }
    }
  }

  static void severalResults(Connection c) throws SQLException {
    try (Statement s = c.createStatement()) {
      want(s.execute("SELECT 1; UPDATE p SET note = note WHERE k = 1; SELECT 2"), true);
      want(read(s.getResultSet()), "[1]");
      want(s.getMoreResults() + " " + (s.getUpdateCount() > 19), "false true");
      want(s.getMoreResults(), true);
      want(read(s.getResultSet()), "[2]");
    }
  }

  static void escapes(Connection c) throws SQLException {
    exec(c, "INSERT INTO p VALUES (5, 80000, '50%_\\', 1)");
    want(rows(c, "SELECT id FROM p WHERE k = ? AND note LIKE ? {escape '|'}", 5L, "50|%|_\\"), "[80000]");
    want(rows(c, "SELECT id FROM p WHERE note LIKE ? {escape '|'}", "50|%|_\\"), "[80000]");
    want(rows(c, "SELECT {fn concat('a', {fn ucase('b')})}, {d '2026-02-03'}, {fn length('abc')}"), "[aB 2026-02-03 3]");
    want(rows(c, "SELECT count(*) FROM {oj p LEFT OUTER JOIN p q ON p.k = q.k AND p.id = q.id} WHERE p.k = 5 AND p.id = 80000"), "[1]");
    exec(c, "DELETE FROM p WHERE k = 5 AND id = 80000");
  }

  static void functions(Connection c) throws SQLException {
    exec(c, "CREATE OR REPLACE FUNCTION twice(n int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT n * 2'");
    try (var s = c.prepareCall("{? = call twice(?)}")) {
      s.registerOutParameter(1, Types.INTEGER);
      s.setInt(2, 21);
      s.execute();
      want(s.getInt(1), 42);
    }
    exec(c, "DROP FUNCTION twice(int)");
  }

  static void metadata(Connection c) throws SQLException {
    exec(c, "DROP TABLE IF EXISTS child, parent", "CREATE TABLE parent (id int PRIMARY KEY, name varchar(20) NOT NULL UNIQUE)", "COMMENT ON TABLE parent IS 'said'",
        "CREATE TABLE child (id serial PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE, at timestamptz DEFAULT now())", "CREATE INDEX child_at ON child (at DESC)");
    DatabaseMetaData m = c.getMetaData();
    want(m.getDatabaseProductName(), "PostgreSQL");
    want(m.getURL().endsWith(System.getenv("PGDATABASE")) + " " + m.getUserName(), "true app");
    want(rowsOf(m.getTables(null, "public", "p%", new String[] {"TABLE"}), "TABLE_NAME"), "[p, parent]");
    want(rowsOf(m.getTables(null, "public", "parent", null), "REMARKS"), "[said]");
    want(rowsOf(m.getColumns(null, "public", "p", "%"), "COLUMN_NAME"), "[k, id, note, price]");
    want(rowsOf(m.getColumns(null, "public", "child", "%"), "TYPE_NAME"), "[serial, int4, timestamptz]");
    want(rowsOf(m.getColumns(null, "public", "child", "id"), "IS_AUTOINCREMENT"), "[YES]");
    want(rowsOf(m.getPrimaryKeys(null, "public", "p"), "COLUMN_NAME"), "[k, id]");
    want(rowsOf(m.getImportedKeys(null, "public", "child"), "PKTABLE_NAME"), "[parent]");
    want(rowsOf(m.getExportedKeys(null, "public", "parent"), "FKTABLE_NAME"), "[child]");
    want(rowsOf(m.getCrossReference(null, "public", "parent", null, "public", "child"), "FKCOLUMN_NAME"), "[parent]");
    want(rowsOf(m.getIndexInfo(null, "public", "child", false, false), "INDEX_NAME"), "[child_pkey, child_at]");
    want(rowsOf(m.getIndexInfo(null, "public", "p", true, false), "COLUMN_NAME"), "[k, id]");
    want(rowsOf(m.getBestRowIdentifier(null, "public", "p", DatabaseMetaData.bestRowSession, false), "COLUMN_NAME"), "[k, id]");
    want(rowsOf(m.getSchemas(), "TABLE_SCHEM").contains("public"), true);
    want(rowsOf(m.getTypeInfo(), "TYPE_NAME").contains("jsonb"), true);
    want(rowsOf(m.getTableTypes(), "TABLE_TYPE").contains("VIEW"), true);
    want(rowsOf(m.getTablePrivileges(null, "public", "parent"), "PRIVILEGE").contains("SELECT"), true);
    want(rowsOf(m.getColumnPrivileges(null, "public", "parent", "id"), "PRIVILEGE").contains("SELECT"), true);
    want(rowsOf(m.getVersionColumns(null, "public", "parent"), "COLUMN_NAME"), "[ctid]");
    m.getFunctions(null, "public", "%").close();
    m.getProcedures(null, "public", "%").close();
    m.getUDTs(null, "public", "%", null).close();
    m.getCatalogs().close();
    m.getClientInfoProperties().close();
    want(m.getSQLKeywords().isEmpty(), false);
    want(m.getMaxColumnNameLength(), 63);
    try (PreparedStatement s = c.prepareStatement("SELECT k, note, price + 1 AS more FROM p WHERE k = ? AND note = ?")) {
      ResultSetMetaData r = s.getMetaData();
      want(r.getColumnTypeName(1) + r.getTableName(1) + r.isNullable(1) + r.isAutoIncrement(1) + r.getColumnLabel(3) + r.getPrecision(3), "int8p0falsemore0");
      ParameterMetaData p = s.getParameterMetaData();
      want(p.getParameterTypeName(1) + p.getParameterTypeName(2), "int8text");
    }
    exec(c, "DROP TABLE child, parent");
  }

  static void transactions(Connection c) throws SQLException {
    for (int level : new int[] {Connection.TRANSACTION_SERIALIZABLE, Connection.TRANSACTION_REPEATABLE_READ, Connection.TRANSACTION_READ_COMMITTED}) {
      c.setTransactionIsolation(level);
      want(c.getTransactionIsolation(), level);
    }
    c.setAutoCommit(false);
    c.setReadOnly(true);
    want(state(c, "INSERT INTO p VALUES (1, 1, 'x', 1)"), "25006");
    c.rollback();
    c.setReadOnly(false);
    exec(c, "INSERT INTO p VALUES (1, 90000, 'x', 1)", "INSERT INTO p VALUES (2, 90000, 'x', 1)");
    c.commit();
    exec(c, "DELETE FROM p WHERE id = 90000");
    c.rollback();
    want(rows(c, "SELECT count(*) FROM p WHERE id = 90000"), "[2]");
    exec(c, "DELETE FROM p WHERE id = 90000");
    c.commit();
  }

  static void settings(Connection c) throws SQLException {
    c.setSchema("pg_catalog");
    want(c.getSchema(), "pg_catalog");
    c.setSchema("public");
    c.setClientInfo("ApplicationName", "my \"program\"");
    want(rows(c, "SHOW application_name"), "[my \"program\"]");
    want(c.getCatalog(), System.getenv("PGDATABASE"));
    want(c.isValid(5), true);
    try (Connection o = connect("currentSchema", "pg_catalog", "options", "-c statement_timeout=7s", "ApplicationName", "jdbc", "assumeMinServerVersion", "12")) {
      want(rows(o, "SELECT current_setting('search_path'), current_setting('statement_timeout'), current_setting('application_name')"), "[pg_catalog 7s jdbc]");
    }
    try (Connection o = connect("readOnly", "true", "readOnlyMode", "always")) {
      want(state(o, "INSERT INTO p VALUES (1, 1, 'x', 1)"), "25006");
    }
    try (Connection o = connect("targetServerType", "primary", "loadBalanceHosts", "true")) {
      want(rows(o, "SELECT 1"), "[1]");
    }
  }

  static void timeouts(Connection c) throws Exception {
    try (Statement s = c.createStatement()) {
      s.setQueryTimeout(1);
      s.executeQuery("SELECT pg_sleep(30)");
      throw new AssertionError("no error");
    } catch (SQLException e) {
      want(e.getSQLState(), "57014");
    }
    try (Statement s = c.createStatement()) {
      AtomicBoolean over = new AtomicBoolean();
      Thread t = new Thread(() -> {
        while (!over.get()) {
          try {
            s.cancel();
            Thread.sleep(20);
          } catch (SQLException | InterruptedException e) {
            return;
          }
        }
      });
      t.setDaemon(true);
      t.start();
      try {
        s.executeQuery("SELECT pg_sleep(31)");
        throw new AssertionError("no error");
      } catch (SQLException e) {
        want(e.getSQLState(), "57014");
      }
      over.set(true);
      t.join();
    }
    want(rows(c, "SELECT 1"), "[1]");
  }

  static void largeObjects(Connection c) throws Exception {
    c.setAutoCommit(false);
    LargeObjectManager m = c.unwrap(PGConnection.class).getLargeObjectAPI();
    long oid = m.createLO(LargeObjectManager.READ | LargeObjectManager.WRITE);
    try (LargeObject o = m.open(oid, LargeObjectManager.WRITE)) {
      o.write("hello".getBytes(StandardCharsets.UTF_8));
    }
    c.commit();
    try (LargeObject o = m.open(oid, LargeObjectManager.READ)) {
      want(new String(o.read(5), StandardCharsets.UTF_8), "hello");
    }
    m.delete(oid);
    c.commit();
  }

  static void refCursors(Connection c) throws SQLException {
    exec(c, "CREATE OR REPLACE FUNCTION rc() RETURNS refcursor LANGUAGE plpgsql AS 'DECLARE r refcursor; BEGIN OPEN r FOR SELECT generate_series(1, 3); RETURN r; END'");
    c.setAutoCommit(false);
    try (var s = c.prepareCall("{? = call rc()}")) {
      s.registerOutParameter(1, Types.REF_CURSOR);
      s.execute();
      want(read((ResultSet) s.getObject(1)), "[1, 2, 3]");
    }
    c.rollback();
    c.setAutoCommit(true);
    exec(c, "DROP FUNCTION rc()");
  }

  static void errors(Connection c) throws SQLException {
    try {
      exec(c, "INSERT INTO p VALUES (1, 1, 'twice', 1)");
      throw new AssertionError("no error");
    } catch (org.postgresql.util.PSQLException e) {
      want(e.getServerErrorMessage().getConstraint() + " " + e.getServerErrorMessage().getTable() + " " + e.getServerErrorMessage().getDetail(), "p_pkey p Key (k, id)=(1, 1) already exists.");
    }
    want(state(c, "SELECT * FROM nowhere"), "42P01");
    want(state(c, "SELECT 1/0"), "22012");
    want(state(c, "SELEC"), "42601");
    exec(c, "DO $$ BEGIN RAISE NOTICE 'told'; END $$");
  }

  static void times(Connection c) throws SQLException {
    TimeZone before = TimeZone.getDefault();
    try {
      for (String zone : new String[] {"America/New_York", "Asia/Kolkata", "UTC"}) {
        TimeZone.setDefault(TimeZone.getTimeZone(zone));
        try (Connection z = connect()) {
          exec(z, "DROP TABLE IF EXISTS z", "CREATE TABLE z (k bigint, at timestamptz, ts timestamp, d date, PRIMARY KEY (k))" + key);
          Timestamp t = Timestamp.valueOf("2026-07-01 23:59:59.123456");
          for (int k = 0; k < 8; k++) {
            try (PreparedStatement s = z.prepareStatement("INSERT INTO z VALUES (?, ?, ?, ?)")) {
              s.setLong(1, k);
              s.setTimestamp(2, t);
              s.setTimestamp(3, t);
              s.setDate(4, Date.valueOf("2026-07-01"));
              s.executeUpdate();
            }
          }
          want(rows(z, "SELECT DISTINCT ts, d, at = ? FROM z", t), "[2026-07-01 23:59:59.123456 2026-07-01 t]");
          try (Statement s = z.createStatement(); ResultSet r = s.executeQuery("SELECT at, ts, d FROM z ORDER BY at, k")) {
            while (r.next()) want(r.getTimestamp(1) + " " + r.getTimestamp(2) + " " + r.getDate(3), t + " " + t + " 2026-07-01");
          }
        }
      }
    } finally {
      TimeZone.setDefault(before);
    }
  }

  static void manyParameters(Connection c) throws SQLException {
    try (PreparedStatement s = c.prepareStatement("SELECT count(*) FROM p WHERE k = 1 AND id IN (" + "?, ".repeat(9999) + "?)")) {
      for (int i = 1; i <= 10000; i++) s.setLong(i, i);
      want(read(s.executeQuery()), "[20]");
    }
    try (PreparedStatement s = c.prepareStatement("SELECT count(*) FROM p WHERE id = ANY (?)")) {
      s.setArray(1, c.createArrayOf("bigint", new Long[] {1L, 2L, 3L}));
      want(read(s.executeQuery()), "[3]");
    }
  }

  public static void main(String[] args) throws Exception {
    try (Connection c = connect()) {
      if (state(c, "SELECT 1 FROM cleave.shards").equals("00000")) key = " WITH (cleave.shard_key = 'k')";
      fill(c, 200);
    }
    Map<String, Test> tests = new LinkedHashMap<>();
    tests.put("types", Jdbc::types);
    tests.put("server_prepared", Jdbc::serverPrepared);
    tests.put("generated_keys", Jdbc::generated);
    tests.put("batches", Jdbc::batches);
    tests.put("rewritten_batches", Jdbc::rewrittenBatches);
    tests.put("copies", Jdbc::copies);
    tests.put("cursors", Jdbc::cursors);
    tests.put("scrolls_and_updates", Jdbc::scrolls);
    tests.put("listens", Jdbc::listens);
    tests.put("savepoints", Jdbc::savepoints);
    tests.put("autosaves", Jdbc::autosaves);
    tests.put("query_modes", Jdbc::modes);
    tests.put("several_results", Jdbc::severalResults);
    tests.put("escapes", Jdbc::escapes);
    tests.put("functions", Jdbc::functions);
    tests.put("metadata", Jdbc::metadata);
    tests.put("transactions", Jdbc::transactions);
    tests.put("settings", Jdbc::settings);
    tests.put("timeouts", Jdbc::timeouts);
    tests.put("large_objects", Jdbc::largeObjects);
    tests.put("ref_cursors", Jdbc::refCursors);
    tests.put("errors", Jdbc::errors);
    tests.put("times", Jdbc::times);
    tests.put("many_parameters", Jdbc::manyParameters);
    for (var t : tests.entrySet()) {
      try (Connection c = connect()) {
        t.getValue().run(c);
        System.out.println("ok " + t.getKey());
      } catch (Throwable e) {
        String at = "";
        for (var f : e.getStackTrace()) if (f.getClassName().equals("Jdbc") && !f.getMethodName().equals("want")) { at = " (line " + f.getLineNumber() + ")"; break; }
        System.out.println("not ok " + t.getKey() + ": " + String.valueOf(e).replace('\n', ' ') + at);
      }
    }
    System.out.println("end");
  }
}
